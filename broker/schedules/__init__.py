"""Schedules: messages that a broker sends again and again, by cron or every N.  Not in RocketMQ."""
