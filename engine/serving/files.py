"""The routes of /v1/files: uploads are read to disk, checked there, and kept for the batches that name them."""

import asyncio
import mmap
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from ..errors import InvalidRequest, StoreFailed, TenantQueueFull
from ..reception import Reception
from ..stores.aside import Aside
from ..stores.file_store import MOST_OF_TENANT, FileStore, StoredFile
from .batch_lines import check_lines
from .limits import MIB, Limits
from .multipart import Part, boundary_of, parts_in
from .replies import JsonReply
from .tenant_check import terms_of

MOST_BYTES = 200 * MIB
UPLOAD_SECONDS = 600.0
AT_ONCE = 4  # uploads; others wait for their turn
FORM_BYTES = 64 * 1024  # around the file
COPIED = MIB  # at a time
PURPOSE = "batch"
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


class Files:
    """Uploads belong to a tenant; nobody else finds them."""

    def __init__(self, store: FileStore, aside: Aside, reception: Reception, limits: Limits) -> None:
        self._store = store
        self._aside = aside
        self._reception = reception
        self._limits = limits
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def create(self, request: Request) -> Response:
        """POST /v1/files: a form with `purpose` and `file`."""
        tenant = terms_of(request.scope).name
        boundary = boundary_of(request.headers.get("content-type", ""))
        if not await self._aside.run(lambda: self._store.can_add(tenant)):
            raise TenantQueueFull(f"you have {MOST_OF_TENANT} files here, the most at a time: delete some")
        form, content = (self._store.incoming(uuid4().hex) for _ in range(2))
        try:
            async with self._turns:
                await _receive(request, form)
                name = await asyncio.to_thread(self._checked, form, boundary, content)
            file = StoredFile(f"file-{uuid4().hex}", tenant, int(self._reception.unix()), name, PURPOSE)
            await self._aside.run(lambda: self._store.add(file, content))
        except OSError as problem:
            raise StoreFailed(f"the file cannot be kept: {problem.strerror}") from None
        finally:
            for path in (form, content):
                path.unlink(missing_ok=True)
        return JsonReply(await self._told(file))

    async def index(self, request: Request) -> Response:
        """GET /v1/files: all of them, the newest first."""
        tenant, purpose = terms_of(request.scope).name, request.query_params.get("purpose")
        files = await self._aside.run(lambda: self._store.of_tenant(tenant))
        told = [await self._told(each) for each in files if purpose in (None, each.purpose)]
        return JsonReply({"object": "list", "data": told, "has_more": False})

    async def get(self, request: Request, file_id: str) -> Response:
        """GET /v1/files/{id}"""
        return JsonReply(await self._told(await self.find(request, file_id)))

    async def content(self, request: Request, file_id: str) -> Response:
        """GET /v1/files/{id}/content: what is in it by now."""
        file = await self.find(request, file_id)
        return FileResponse(self._store.path(file.id), media_type="application/jsonl", filename=file.name)

    async def delete(self, request: Request, file_id: str) -> Response:
        """DELETE /v1/files/{id}"""
        file = await self.find(request, file_id)
        await self._aside.run(lambda: self._store.delete(file.id, file.tenant))
        return JsonReply({"id": file.id, "object": "file", "deleted": True})

    async def find(self, request: Request, file_id: str) -> StoredFile:
        """A file of whoever asks. Raises HTTPException 404."""
        tenant = terms_of(request.scope).name
        file = await self._aside.run(lambda: self._store.find(file_id, tenant))
        if file is None:
            raise HTTPException(404, f"there is no file {file_id[:100]!r}")
        return file

    async def _told(self, file: StoredFile) -> dict[str, Any]:
        return {
            "id": file.id,
            "object": "file",
            "bytes": await self._aside.run(lambda: self._store.size(file.id)),
            "created_at": file.created,
            "filename": file.name,
            "purpose": file.purpose,
            "status": "processed",
        }

    def _checked(self, form: Path, boundary: bytes, content: Path) -> str:
        """Take the file out of its form and check its lines; its name."""
        with form.open("rb") as file:
            if not form.stat().st_size:
                raise InvalidRequest("the form is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
                parts = {part.name: part for part in parts_in(body, boundary)}
                upload = _upload(parts, body)
                with content.open("wb") as out:
                    for start in range(upload.start, upload.end, COPIED):
                        out.write(body[start : min(start + COPIED, upload.end)])
        check_lines(content, self._limits)
        return _UNPRINTABLE.sub("", upload.file_name or "file.jsonl")[:255]


def _upload(parts: dict[str, Part], body: mmap.mmap) -> Part:
    purpose, upload = parts.get("purpose"), parts.get("file")
    if purpose is None or body[purpose.start : purpose.end] != PURPOSE.encode():
        raise InvalidRequest(f"purpose must be {PURPOSE}", "purpose")
    if upload is None:
        raise InvalidRequest("the form has no file", "file")
    if upload.end - upload.start > MOST_BYTES:
        raise _too_large()
    return upload


async def _receive(request: Request, form: Path) -> None:
    size = 0
    try:
        async with asyncio.timeout(UPLOAD_SECONDS):
            with form.open("wb") as file:
                async for part in request.stream():
                    size += len(part)
                    if size > MOST_BYTES + FORM_BYTES:
                        raise _too_large()
                    file.write(part)
    except TimeoutError:
        raise HTTPException(
            408, f"the file did not come within {UPLOAD_SECONDS:g} s", {"Connection": "close"}
        ) from None


def _too_large() -> HTTPException:
    return HTTPException(413, f"a file may have at most {MOST_BYTES} bytes")
