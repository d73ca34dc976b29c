"""Which parts of the broker do what one replica of a group alone may do, as its role changes.

Source: RocketMQ 5.3.3, `BrokerController.changeSpecialServiceStatus`.
"""

from collections.abc import Sequence

from broker.role import Role
from broker.service import Service


class GroupWork:
    """Activates the services of a broker whose role says that it serves the group, and deactivates them again."""

    def __init__(self, role: Role, services: Sequence[Service]) -> None:
        self._role = role
        self._services = services
        self._is_running = False
        self._is_active = False
        # Whether another replica did the work since this one was loaded, or last did it.
        self._takes_over = role.is_slave
        role.on_change.append(self._update)

    def start(self) -> None:
        """Begin, if the role says so; follow the role from now on."""
        self._is_running = True
        self._update()

    def handed_back(self) -> None:
        """Tables were taken from the replica that did the work; before `start`."""
        self._takes_over = True

    def stop(self) -> None:
        """End it, whatever the role says."""
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
