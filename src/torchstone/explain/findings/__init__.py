"""What a ledger gives away: findings by what they are about. A ledger in, a prediction out."""
