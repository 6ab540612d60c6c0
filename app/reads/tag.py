"""getTag: one annotated tag object."""

from __future__ import annotations

from typing import Any

from app.reads.base import Params, named, text
from app.reads.commit import header_records, ident_record, message_record
from pack.charset import decode
from pack.commit import subject
from pack.errors import WrongType
from pack.objects import TAG, TYPE_NAMES
from pack.revision import resolve, show
from pack.view import View


def read(view: View, params: Params) -> dict[str, Any]:
    found = resolve(view, params["rev"])
    if found.type != TAG:
        name = TYPE_NAMES[found.type].decode()
        raise WrongType(f"{show(params['rev'])} names a {name}, not an annotated tag", parameter="rev")
    tag = view.tag(found.oid)
    return {
        "commit": found.commit.hex() if found.commit is not None else None,
        "oid": found.oid.hex(),
        "object": tag.object.hex(),
        "type": TYPE_NAMES[tag.type].decode(),
        **named("name", tag.name),
        "tagger": ident_record(tag.tagger, tag.encoding),
        **message_record(tag.message, tag.encoding),
        "subject": decode(subject(tag.text), tag.encoding)[0],
        "encoding": text(tag.encoding) if tag.encoding is not None else None,
        "signed": tag.signature is not None,
        "signature": text(tag.signature) if tag.signature is not None else None,
        "headers": header_records(tag.headers),
    }
