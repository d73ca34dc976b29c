"""Handlers for the administration of consumer groups.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.updateAndCreateSubscriptionGroup` and its neighbours.
"""

from acl.visible_names import only_visible
from broker.core import BrokerCore
from broker.names import illegal_group, illegal_new_group
from broker.table_pages import TablePages
from sprocket.common.errors import RequestError
from sprocket.common.next_turn import next_turn, to_its_end
from sprocket.remoting.bodies.group import GroupForbidden, SubscriptionGroupConfig
from sprocket.remoting.bodies.requests import read_doomed_groups, read_group, read_group_list
from sprocket.remoting.bodies.topic import PERM_READ
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from sprocket.remoting.message.lite_groups import lite_bind_topic
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps

# Max queues of a retry topic; far more than a group has members.
_MAX_RETRY_QUEUE_NUMS = 1024


class GroupProcessor:
    """Handler to create, delete and describe consumer groups."""

    def __init__(self, core: BrokerCore, pages: TablePages) -> None:
        self._groups = core.groups
        self._offsets = core.offsets
        self._pages = pages

    def routes(self) -> list[Route]:
        code, group = RequestCode, Resource.GROUP
        return [
            Route(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NoHeader, self.create, group, Action.CREATE),
            Route(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, NoHeader, self.create_list, group, Action.CREATE),
            Route(
                code.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader, self.delete,
                group, Action.DELETE,
            ),
            Route(code.DELETE_SUBSCRIPTION_GROUP_LIST, NoHeader, self.delete_list, group, Action.DELETE),
            Route(
                code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllSubscriptionGroupRequestHeader, self.all_configs,
                group, Action.LIST,
            ),
            Route(
                code.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader, self.config,
                group, Action.GET,
            ),
            Route(
                code.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbiddenRequestHeader, self.forbid,
                group, Action.UPDATE,
            ),
        ]  # fmt: skip

    async def create(self, request: Request[NoHeader]) -> Response:
        """Create or change a group; the response follows the write of the file."""
        self._update([read_group(request.body)])
        await self._groups.save()
        return Response()

    async def create_list(self, request: Request[NoHeader]) -> Response:
        """Create or change several groups, all or none; the response follows the write of the file."""
        self._update(read_group_list(request.body))
        await self._groups.save()
        return Response()

    def _update(self, configs: list[SubscriptionGroupConfig]) -> None:
        for config in configs:
            name = config.group_name
            reason = illegal_group(name) if name in self._groups else illegal_new_group(name)
            if reason is None and not 0 <= config.retry_queue_nums <= _MAX_RETRY_QUEUE_NUMS:
                reason = f"retryQueueNums = {config.retry_queue_nums}: allowed are 0 to {_MAX_RETRY_QUEUE_NUMS}"
            if reason is not None:
                raise RequestError(ResponseCode.INVALID_PARAMETER, reason)
        self._groups.namespaces.check_groups([config.group_name for config in configs], self._groups.by_name)
        self._groups.update(configs)

    async def delete(self, request: Request[DeleteSubscriptionGroupRequestHeader]) -> Response:
        """Delete a group; with cleanOffset also its offsets."""
        await to_its_end(self._delete([request.header.group_name], clean_offset=bool(request.header.clean_offset)))
        return Response()

    async def delete_list(self, request: Request[NoHeader]) -> Response:
        """Delete several groups; with cleanOffset also their offsets.  There is no limit of groups per second."""
        asked = read_doomed_groups(request.body)
        if not asked.group_name_list:
            raise RequestError(ResponseCode.INVALID_PARAMETER, "The specified group name list is blank.")
        if not all(name.strip() for name in asked.group_name_list):
            raise RequestError(ResponseCode.INVALID_PARAMETER, "The specified group name is blank.")
        await to_its_end(self._delete(asked.group_name_list, clean_offset=asked.clean_offset))
        return Response()

    async def _delete(self, groups: list[str], *, clean_offset: bool) -> None:
        # Those of lite topics always: nothing else would delete them once the group is forgotten.
        cleaned = [group for group in groups if clean_offset or self._has_lite_topics(group)]
        for group in groups:
            self._groups.delete(group)
        await self._groups.save()
        for group in cleaned:
            self._offsets.remove_group(group)
            await next_turn()  # each looks at all offsets

    def _has_lite_topics(self, group: str) -> bool:
        config = self._groups.get(group)
        return config is not None and lite_bind_topic(config.attributes) is not None

    def all_configs(self, request: Request[GetAllSubscriptionGroupRequestHeader]) -> Steps:
        """Return all groups that the caller may see, or a page of them, with the data version and their number."""
        header, groups = request.header, self._groups
        shown = yield from only_visible(groups.by_name, request)
        part = self._pages.page(
            shown, groups.data_version,
            start=header.group_seq, max_count=header.max_group_num, known=header.data_version,
        )  # fmt: skip
        total = GetAllSubscriptionGroupResponseHeader(total_group_num=len(shown))
        return Response(header=total, body=groups.encode(part))

    def config(self, request: Request[GetSubscriptionGroupConfigRequestHeader]) -> Response:
        """Return one group's configuration.  The response is RocketMQ's, but unlike there no group is created."""
        config = self._groups.described(request.header.group)
        if config is None:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return Response(body=dumps(config))

    async def forbid(self, request: Request[UpdateGroupForbiddenRequestHeader]) -> Response:
        """Forbid a group to consume a topic, allow it again, or only return the current state."""
        header = request.header
        if header.readable is not None:
            if header.group not in self._groups:
                return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
            bits = self._groups.forbidden(header.group, header.topic)
            bits = bits & ~PERM_READ if header.readable else bits | PERM_READ
            self._groups.forbid(header.group, header.topic, bits)
            await self._groups.save()
        readable = not self._groups.forbidden(header.group, header.topic) & PERM_READ
        return Response(body=dumps(GroupForbidden(header.topic, header.group, readable)))
