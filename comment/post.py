"""Write a report of `torchstone check --json` as one comment on its pull request.

Runs in a `workflow_run` job, with a token that may write, and trusts nothing that the pull request
made: the report is parsed with limits and every text in it is escaped; which pull request it is
about comes from GitHub's own event, never from the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

MARKER = "<!-- torchstone check -->"
PAGES = 10
"""Of a hundred comments each: further back nobody looks."""


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One call of GitHub's API."""
    url = os.environ.get("GITHUB_API_URL", "https://api.github.com") + path
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def pull_request(repository: str, run: dict[str, Any]) -> int | None:
    """The open pull request whose newest commit was measured; None where it has moved on."""
    owner = run["head_repository"]["owner"]["login"]
    head = urllib.parse.quote(f"{owner}:{run['head_branch']}", safe="")
    for found in ask("GET", f"/repos/{repository}/pulls?state=open&head={head}"):
        if found["head"]["sha"] == run["head_sha"]:
            return int(found["number"])
    return None


def own_comment(repository: str, number: int) -> int | None:
    """The comment that is to be renewed: ours, by a bot and by its first line."""
    for page in range(1, PAGES + 1):
        path = f"/repos/{repository}/issues/{number}/comments?per_page=100&page={page}"
        comments = ask("GET", path)
        for comment in comments:
            if comment["user"]["type"] == "Bot" and comment["body"].startswith(MARKER):
                return int(comment["id"])
        if len(comments) < 100:
            return None
    return None


def comment_text(path: str) -> str:
    """As `torchstone check --from FILE --markdown` writes it; whatever code it ends with."""
    command = [sys.executable, "-m", "torchstone", "check", "--from", path, "--markdown"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith(MARKER):
        raise SystemExit(f"The report cannot be shown: {done.stderr.strip()}")
    return done.stdout


def without_report(run: dict[str, Any]) -> str:
    """In place of figures that are of older commits."""
    return (
        f"{MARKER}\n**The check ended without a report.** [Its log]({run['html_url']}) says why.\n"
    )


def main() -> None:
    """Find the pull request, then renew its comment or write one."""
    with open(os.environ["GITHUB_EVENT_PATH"], encoding="utf-8") as file:
        run = json.load(file)["workflow_run"]
    repository = os.environ["GITHUB_REPOSITORY"]
    if run["event"] != "pull_request":
        print("The run was not of a pull request: nothing to comment on.")
        return
    number = pull_request(repository, run)
    if number is None:
        print("The pull request is closed or has newer commits: nothing to comment on.")
        return
    report = sys.argv[1]
    if not os.path.exists(report) and run["conclusion"] != "failure":
        print("The run was cancelled, or measured nothing: nothing to comment on.")
        return
    body = {"body": comment_text(report) if os.path.exists(report) else without_report(run)}
    try:
        known = own_comment(repository, number)
        if known is None:
            ask("POST", f"/repos/{repository}/issues/{number}/comments", body)
        else:
            ask("PATCH", f"/repos/{repository}/issues/comments/{known}", body)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"GitHub refused the comment: {error.code} {error.reason}") from None
    print(f"Commented on pull request {number}.")


if __name__ == "__main__":
    main()
