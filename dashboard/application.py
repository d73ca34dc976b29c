"""The dashboard as an aiohttp application.  Every other module knows nothing of the web library.

The order of checks: Host, static file, session, login, Origin and token of a form, permission to change.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from aiohttp import web

from dashboard.access import Access, Held, LoginRefused
from dashboard.asking.names import near_topics
from dashboard.page import BadInput, Page, PageRoute, Refused, Visit
from dashboard.rendering import STATIC, Templates
from dashboard.sampling.history import History
from dashboard.security.headers import PAGE_CACHING, SECURITY_HEADERS, STATIC_CACHING
from dashboard.security.hosts import is_allowed, is_same_origin
from dashboard.security.sessions import Session, is_token, token_of
from dashboard.settings import DashboardSettings
from dashboard.views.refusals import refusal_of
from sprocket.client.admin.at_once import AtOnce
from sprocket.client.errors import PermissionDenied
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError
from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)

SESSION_COOKIE: Final = "sprocket_session"
_VISITOR_COOKIE: Final = "sprocket_visitor"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_FORM: Final = "application/x-www-form-urlencoded"
_MAX_FIELDS: Final = 50
_READ_ONLY: Final = "This dashboard is read-only. Start it with --allow-changes to change the cluster."


@dataclass(frozen=True)
class _Caller:
    """Who sent a request: the session, or None, and the id to which tokens of forms are bound."""

    session: Session[Held] | None
    cookie_id: str
    is_new: bool


_CALLER: Final = web.RequestKey("caller", _Caller)


class Pages:
    """Handlers of all requests."""

    def __init__(
        self, settings: DashboardSettings, access: Access, at_once: AtOnce, history: History, clock: Clock,
        routes: Sequence[PageRoute], *, new_id: Callable[[], str], key: bytes,
        answering: Callable[[asyncio.BaseTransport | None], AbstractContextManager[None]],
    ) -> None:  # fmt: skip
        """`key` signs the tokens of forms.  `answering` is held with the connection of each request."""
        self._settings = settings
        self._access = access
        self._at_once = at_once
        self._history = history
        self._clock = clock
        self._routes = routes
        self._new_id = new_id
        self._key = key
        self._answering = answering
        self._templates = Templates()

    def application(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guarded], client_max_size=self._settings.max_form_bytes)
        for route in self._routes:
            app.router.add_route(route.method, route.path, self._page(route))
        app.router.add_get("/login", self._login_form)
        app.router.add_post("/login", self._log_in)
        app.router.add_post("/logout", self._log_out)
        app.router.add_static("/static", STATIC, append_version=False)
        return app

    # Before every handler

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        with self._answering(request.transport):
            response = await self._answer(request, handler)
        response.headers.update(SECURITY_HEADERS)
        response.headers.update(STATIC_CACHING if request.path.startswith("/static/") else PAGE_CACHING)
        return response

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not is_allowed(request.headers.get("Host", ""), self._allowed_hosts()):
            return web.Response(
                status=421,
                text="The name in the address is not allowed here. Use the address of the machine, or start the "
                "dashboard with --allowed-host NAME.",
            )
        if request.path.startswith("/static/"):
            try:
                return await handler(request)
            except web.HTTPException as error:
                return web.Response(status=error.status, text=error.reason)
        caller = self._caller(request)
        try:
            async with asyncio.timeout(self._settings.page_timeout_s):
                request[_CALLER] = caller
                response = await handler(request)
        except web.HTTPException as error:
            response = self._http_error(caller, error)
        except TimeoutError:
            what = f"The servers did not answer within {self._settings.page_timeout_s:g} s."
            response = self._error(
                caller, 504, "Too slow", what, "Check the cluster map for servers that do not answer."
            )
        except Exception as error:
            peer_lines.error(logger, request.remote or "", "event=page_failed path=%r", request.path, exc_info=error)
            response = self._error(
                caller, 500, "A fault of the dashboard", "This page failed.", "See the dashboard's log for the cause."
            )
        if caller.session is None and caller.is_new and SESSION_COOKIE not in response.cookies:
            self._set_cookie(request, response, _VISITOR_COOKIE, caller.cookie_id)
        return response

    def _allowed_hosts(self) -> tuple[str, ...]:
        return (*self._settings.allowed_hosts, self._settings.host)

    def _caller(self, request: web.Request) -> _Caller:
        id_ = request.cookies.get(SESSION_COOKIE, "")
        session = self._access.session(id_) if _ID.fullmatch(id_) else None
        if session is not None:
            return _Caller(session, session.id, False)
        visitor = request.cookies.get(_VISITOR_COOKIE, "")
        if _ID.fullmatch(visitor):
            return _Caller(None, visitor, False)
        return _Caller(None, self._new_id(), True)

    def _set_cookie(self, request: web.Request, response: web.StreamResponse, name: str, value: str) -> None:
        response.set_cookie(name, value, path="/", httponly=True, samesite="Strict", secure=request.secure)

    # Pages

    def _page(self, route: PageRoute) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            caller: _Caller = request[_CALLER]
            if caller.session is None and await self._access.needs_login():
                return self._to_login(request)
            fields: Mapping[str, str] = request.query
            if route.changes:
                refused = self._refused_form(request, caller, fields := await self._form(request))
                if refused is not None:
                    return refused
                if not self._settings.allow_changes:
                    return self._error(caller, 403, "Read-only", "Nothing was changed.", _READ_ONLY)
                peer_lines.info(
                    logger, request.remote or "", "event=change path=%r user=%r peer=%s",
                    route.path, caller.session.user if caller.session else "", request.remote,
                )  # fmt: skip
            return await self._shown(request, caller, route, fields)

        return answer

    async def _shown(
        self, request: web.Request, caller: _Caller, route: PageRoute, fields: Mapping[str, str]
    ) -> web.StreamResponse:
        visit = self._visit(caller, fields)
        try:
            return self._html(caller, await route.handler(visit), request.path)
        except (BadInput, ClientError) as error:
            if isinstance(error, PermissionDenied) and caller.session is None:
                self._access.refused_unsigned()
                return self._to_login(request)
            return self._html(caller, await self._page_of(error, route, visit), request.path)

    async def _page_of(self, error: BadInput | ClientError, route: PageRoute, visit: Visit) -> Page:
        """Return the form of the route, as it was filled in, or the page of errors; both say what was refused."""
        refusal = refusal_of(error, visit.fields.get("topic", "").strip())
        near: list[tuple[str, str]] = []
        if refusal.unknown_topic:
            # A form that was posted is corrected by hand: an address would lose what it holds.
            for name in await near_topics(visit.admin, refusal.unknown_topic):
                address = "" if route.changes else f"{route.path}?{urlencode({**visit.fields, 'topic': name})}"
                near.append((name, address))
        page = Page("error.html", {"title": refusal.title})
        if route.form is not None:
            with suppress(BadInput, ClientError):
                page = await route.form(visit)
        return replace(page, status=refusal.status, refused=Refused(refusal.what, refusal.advice, near))

    def _visit(self, caller: _Caller, fields: Mapping[str, str]) -> Visit:
        session = caller.session
        held = self._access.unsigned if session is None else session.held
        return Visit(
            fields=fields, admin=held.admin, credentials=held.credentials, links=held.links, at_once=self._at_once,
            history=self._history, settings=self._settings, clock=self._clock,
        )  # fmt: skip

    # Forms

    async def _form(self, request: web.Request) -> dict[str, str]:
        if request.content_type != _FORM:
            raise web.HTTPUnsupportedMediaType
        body = await request.read()
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise web.HTTPBadRequest from None
        return dict(pairs)

    def _refused_form(self, request: web.Request, caller: _Caller, form: Mapping[str, str]) -> web.Response | None:
        origin = request.headers.get("Origin")
        is_own = origin is None or is_same_origin(origin, request.headers.get("Host", ""))
        if is_own and not caller.is_new and is_token(self._key, caller.cookie_id, form.get("token", "")):
            return None
        return self._error(
            caller, 403, "The form was refused", "It does not come from a page of this dashboard, or it is too old.",
            "Open the page again and send the form from there. Cookies must be allowed.",
        )  # fmt: skip

    # Login

    async def _login_form(self, request: web.Request) -> web.StreamResponse:
        caller: _Caller = request[_CALLER]
        return self._login_page(caller, request.query.get("next", "/"), "")

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        caller: _Caller = request[_CALLER]
        form = await self._form(request)
        refused = self._refused_form(request, caller, form)
        if refused is not None:
            return refused
        after, name = form.get("next", "/"), form.get("user", "")
        try:
            session = await self._access.log_in(name, form.get("secret", ""), request.remote or "")
        except LoginRefused as error:
            return self._login_page(caller, after, str(error), 403, name)
        except ClientError as error:
            return self._login_page(caller, after, f"The cluster could not be asked: {error}", 502, name)
        if caller.session is not None:
            self._access.log_out(caller.session.id)
        response = web.Response(status=303, headers={"Location": _local_path(after)})
        self._set_cookie(request, response, SESSION_COOKIE, session.id)
        return response

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        caller: _Caller = request[_CALLER]
        refused = self._refused_form(request, caller, await self._form(request))
        if refused is not None:
            return refused
        if caller.session is not None:
            self._access.log_out(caller.session.id)
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(SESSION_COOKIE, path="/")
        return response

    def _login_page(self, caller: _Caller, after: str, problem: str, status: int = 200, name: str = "") -> web.Response:
        values = {"after": _local_path(after), "problem": problem, "name": name}
        return self._html(caller, Page("login.html", values, status), "/login")

    def _to_login(self, request: web.Request) -> web.Response:
        after = quote(request.path_qs if request.method == "GET" else "/", safe="")
        return web.Response(status=303, headers={"Location": f"/login?next={after}"})

    # Responses

    def _html(self, caller: _Caller, page: Page, path: str = "") -> web.Response:
        common = {
            "token": token_of(self._key, caller.cookie_id),
            "user": caller.session.user if caller.session else "",
            "allow_changes": self._settings.allow_changes,
            "is_open": caller.session is None and not self._settings.is_local,
            "path": path,
            "refused": page.refused,
        }
        return web.Response(status=page.status, text=self._templates.html(page, common), content_type="text/html")

    def _error(self, caller: _Caller, status: int, title: str, what: str, advice: str) -> web.Response:
        return self._html(caller, Page("error.html", {"title": title}, status, Refused(what, advice)))

    def _http_error(self, caller: _Caller, error: web.HTTPException) -> web.Response:
        if error.status == 413:
            limit = self._settings.max_form_bytes
            return self._error(caller, 413, "Too large", f"A form may have {limit} bytes.", "Send less at a time.")
        if error.status == 404:
            return self._error(caller, 404, "No such page", "There is nothing at this address.", "Use the menu.")
        return self._error(
            caller, error.status, error.reason, "The request was refused.", "Use the menu and the forms."
        )


def _local_path(text: str) -> str:
    """Return `text` if it is a path of this dashboard, else the first page."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and len(text) < 2000
    return text if is_local else "/"
