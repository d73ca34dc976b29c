"""Activation of the services that only one replica of a group may run, as the broker's role changes.

Source: RocketMQ 5.3.3, `BrokerController.changeSpecialServiceStatus`.
"""

from collections.abc import Sequence

from broker.role import Role
from broker.service import Service


class ActiveServices:
    """Services that are active while the broker's role serves the group."""

    def __init__(self, role: Role, services: Sequence[Service]) -> None:
        self._role = role
        self._services = services
        self._is_running = False
        self._is_active = False
        # Whether another replica ran the services since this one was loaded, or since it last ran them.
        self._takes_over = role.is_slave
        role.on_change.append(self._update)

    def start(self) -> None:
        """Activate the services if the role says so, and follow the role from now on."""
        self._is_running = True
        self._update()

    def note_handover(self) -> None:
        """Note, before `start`, that offsets were fetched from the replica that ran the services."""
        self._takes_over = True

    def stop(self) -> None:
        """Deactivate the services, whatever the role says."""
        self._is_running = False
        self._update()

    def _update(self) -> None:
        is_active = self._is_running and self._role.serves_group
        if is_active == self._is_active:
            return
        self._is_active = is_active
        if is_active:
            if self._takes_over:
                for service in self._services:
                    service.take_over()
            for service in self._services:
                service.activate()
        else:
            for service in reversed(self._services):
                service.deactivate()
