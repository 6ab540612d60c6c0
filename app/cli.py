"""The command `packhouse`."""

from __future__ import annotations

from app import quiet  # before all that takes time to import

# isort: split
import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from app import __version__, names
from app.settings import PREFIX, Settings, SettingsError, load
from app.tokens import BadTokensFile
from pack.errors import PackhouseError

T = TypeVar("T")

app = typer.Typer(
    name="packhouse",
    help="Git repositories in an object store, read over HTTP.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Target = Annotated[str, typer.Argument(metavar="URL|PATH", help="An http(s) URL, or the path of a repository.")]
Store = Annotated[
    str | None,
    typer.Option(
        help="Where repositories live: file:///path, a path, s3://bucket/prefix?endpoint=…, cephfs://name/dir"
    ),
]
CacheDir = Annotated[str | None, typer.Option(help="Folder of the node's cache.")]
Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")]
Name = Annotated[str | None, typer.Option("--name", metavar="OWNER/NAME", help="What to call the repository.")]
Repo = Annotated[str, typer.Argument(metavar="OWNER/NAME")]


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Errors as one line on stderr: 2 for settings, 1 for what went wrong."""
    try:
        yield
    except (SettingsError, BadTokensFile) as error:
        _exit(2, str(error))
    except PackhouseError as error:
        _exit(1, error.detail)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _exit(code: int, text: str) -> None:
    print(f"packhouse: {' '.join(text.split())}", file=sys.stderr)
    raise SystemExit(code)


def _run(work: Coroutine[Any, Any, T]) -> T:
    run_loop: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop

        run_loop = uvloop.run
    quiet.no_longer()
    return run_loop(work)


@app.command()
def run(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[URL|PATH]", help="What to ingest; without it the checkout that you stand in."),
    ] = None,
    name: Name = None,
    host: Host = None,
    port: Port = None,
    store: Store = None,
    cache_dir: CacheDir = None,
) -> None:
    """Serve, ingest a repository, print example requests, and go on serving."""
    with _told():
        from app import running

        settings = _serving(host=host, port=port, store=store, cache_dir=cache_dir)
        _run(running.run(settings, target, names.parse(name) if name else None))


def _settings_help() -> str:
    """Every setting with its default, as the end of a help text; click leaves paragraphs after \\b as they are."""
    lines = ["\b", "Settings (environment variables):"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "", ()) or field.default_factory else f" [{field.default}]"
        lines.append(f"  {PREFIX}{name.upper():<24}{field.description}{default}")
    return "\n".join(lines)


@app.command(epilog=_settings_help())
def serve(host: Host = None, port: Port = None, store: Store = None, cache_dir: CacheDir = None) -> None:
    """Serve what the store has."""
    with _told():
        from app import serving

        settings = _serving(host=host, port=port, store=store, cache_dir=cache_dir)
        _run(serving.check(settings))
        with serving.bind(settings) as sock:
            print(f"packhouse {__version__} serves {settings.store} at {serving.address(settings, sock)}", flush=True)
            serving.serve(settings, sock)


@app.command()
def ingest(
    target: Target,
    name: Annotated[str | None, typer.Argument(metavar="[OWNER/NAME]", help="What to call the repository.")] = None,
    replace: Annotated[bool, typer.Option(help="Begin anew where another upstream is registered.")] = False,
    store: Store = None,
) -> None:
    """Bring a repository into the store, or up to date."""
    with _told():
        from app import bringing

        settings = load(store=store)
        _logs()
        _run(bringing.bring(settings, target, names.parse(name) if name else None, replace))


@app.command()
def export(repository: Repo, directory: Path, store: Store = None) -> None:
    """Write a repository of the store as a bare git repository."""
    with _told():
        owner, name = names.parse(repository)
        generation = _run(_export(load(store=store), owner, name, directory))
        print(f"generation {generation} of {owner}/{name} is in {directory}")


@app.command()
def fsck(
    repository: Annotated[str | None, typer.Argument(metavar="[OWNER/NAME]", help="All of them without it.")] = None,
    store: Store = None,
) -> None:
    """Check what is stored: manifests, packs, indexes, every object, and that nothing is missing."""
    with _told():
        only = names.parse(repository) if repository else None
        if not _run(_fsck(load(store=store), only)):
            raise SystemExit(1)


@app.command()
def rebuild(
    repository: Annotated[str | None, typer.Argument(metavar="[OWNER/NAME]", help="All of them without it.")] = None,
    store: Store = None,
    cache_dir: CacheDir = None,
) -> None:
    """Make the sidecars anew: the derived files that make reads quick."""
    with _told():
        only = names.parse(repository) if repository else None
        _logs()
        _run(_rebuild(load(store=store, cache_dir=cache_dir), only))


@app.command()
def gc(
    repository: Annotated[str | None, typer.Argument(metavar="[OWNER/NAME]", help="All of them without it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be deleted.")] = False,
    grace: Annotated[
        float | None, typer.Option(min=0, help="Leave things alone for so many seconds; 0 only while nobody reads.")
    ] = None,
    store: Store = None,
) -> None:
    """Join small packs, and delete what no generation needs any more."""
    with _told():
        from app import housekeeping

        only = names.parse(repository) if repository else None
        _logs()
        if not _run(housekeeping.collect(load(store=store), only, dry_run=dry_run, seconds=grace, tell=print)):
            raise SystemExit(1)


@app.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who bears it.")],
    repos: Annotated[
        list[str], typer.Option(metavar="GLOB", help="Repositories it is for, such as team/*; may be repeated.")
    ],
    verbs: Annotated[str, typer.Option(help="read, write or admin; each includes those before it.")] = "read",
    days: Annotated[int | None, typer.Option(min=1, help="How long it lasts; for ever without it.")] = None,
    file: Annotated[Path | None, typer.Option(help="Add the record to this tokens file.")] = None,
) -> None:
    """Make a bearer token.

    Prints the secret, which is kept nowhere, and its record for the tokens file; with --file only the secret.
    """
    with _told():
        from datetime import UTC, datetime, timedelta

        from app.tokens import add_record, new_token

        expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
        secret, record = new_token(name, repos, [verb.strip() for verb in verbs.split(",")], expires)
        if file is not None:
            try:
                add_record(file, record)
            except OSError as error:
                _exit(1, f"{file} cannot be written: {error.strerror or error}")
            print(secret)
        else:
            import orjson

            print(secret, orjson.dumps(record).decode(), sep="\n")


@app.command()
def openapi() -> None:
    """Print the OpenAPI document."""
    with _told():
        import orjson

        from app.service import create_app

        document = create_app(load()).openapi()
        sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@app.command()
def version() -> None:
    """Print the version."""
    print(f"packhouse {__version__}")


def _serving(**options: Any) -> Settings:
    from app import serving
    from app.tokens import Tokens

    settings = load(**options)
    serving.refuse(settings)
    Tokens(settings.tokens_file)
    _logs()
    return settings


def _logs() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


async def _rebuild(settings: Settings, only: tuple[str, str] | None) -> None:
    import time

    from app.building import build
    from app.lately import listed_lately
    from app.store import open_store
    from storage.repository import Repositories

    backend, supplier = open_store(settings)
    lately = partial(listed_lately, settings, backend.url)
    try:
        stored = Repositories(backend).list()
        found = [only] if only is not None else [(owner, name) async for owner, name, row in stored if row.ready]
        for owner, name in found:
            begun = time.monotonic()
            built = await build(
                backend, supplier, owner, name, anew=True, lately=lately, stream_bytes=settings.stream_bytes
            )
            what = ", ".join(built or ()) or "nothing to make, or another process is at it"
            print(f"{owner}/{name}: {what} in {time.monotonic() - begun:.1f} s", flush=True)
    finally:
        if supplier is not None:
            await supplier.close()
        await backend.close()


async def _export(settings: Settings, owner: str, name: str, directory: Path) -> int:
    from storage.export import export as write
    from storage.open import opened

    async with opened(settings.store) as backend:
        return (await write(backend, owner, name, directory)).number


async def _fsck(settings: Settings, only: tuple[str, str] | None) -> bool:
    from storage.fsck import fsck as check
    from storage.open import opened
    from storage.repository import Repositories

    good = True
    async with opened(settings.store) as backend:
        stored = Repositories(backend).list()
        found = [only] if only is not None else [(owner, name) async for owner, name, _ in stored]
        for owner, name in found:
            report = await check(backend, owner, name)
            good &= report.ok
            state = "good" if report.ok else f"{len(report.findings)} findings"
            print(
                f"{owner}/{name}: {state} (generation {report.generation}, {report.packs} packs, "
                f"{report.objects} objects, {report.refs} refs)"
            )
            for finding in report.findings:
                print(f"  {finding.code} {finding.where}: {finding.detail}")
    return good


def main(arguments: list[str] | None = None) -> None:
    """Entry of the command."""
    command: Callable[..., Any] = app
    command(args=arguments)


if __name__ == "__main__":
    main()
