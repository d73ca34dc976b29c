"""Log lines of servers that no peer can cause, by the reason why.

All other lines of servers are written by `sprocket.common.logs.peer_lines`, which limits them for each reason and peer.
A line belongs here if a flood of requests or connections cannot make it come more often.  An event that nothing writes
any more fails the test.
"""

# Folders of servers: a stranger may cause what they log.
SERVERS = (
    "acl", "broker", "controller", "dashboard", "ha", "namesrv", "proxy", "store", "sprocket_cli/server",
    "sprocket/metrics", "sprocket/remoting",
)  # fmt: skip

_BY_REASON = {
    "start and stop of a process, of a role, of a listener": """
        started stopped signal restart start_not_undone open_files_limit_kept vip_port_not_open fatal page_served
        dashboard_open proxy_serving proxy_stopped proxy_draining waiting_for_brokers handles_released_at_stop
        supervisor_gone proxy_worker_started proxy_worker_ended proxy_worker_killed proxy_worker_not_started
        ha_listening raft_open raft_started raft_stopped raft_founded raft_bug store_started store_stopped
        weak_setting no_super_user configured_user_differs account_not_migrated rocksdb_users_ignored tls tls_test_mode
        tls_key_ignored secret_exposed timer_roll_window_too_long isolated still_isolated pre_online_failed online
        empty_master_waits tail_recovery tail_recovery_waits tail_recovery_ended tables_recovered
        sync_topic_not_created sync_not_finished role_not_taken""",
    "what is loaded and recovered at a start": """
        auth_loaded accounts_loaded no_accounts account_repeated passwords_rewritten key_file_open key_made
        topics_loaded consumer_offsets_loaded subscription_groups_loaded consumer_filters_loaded request_modes_loaded
        topic_queue_mappings_loaded operator_table_loaded schedules_reading schedules_postponed
        transactions_recovered ids_read delay_offset_corrected revive_offset_corrected index_loaded
        index_files_loaded index_file_ignored log_end_found all_queues_rebuild checkpoint_not_trusted log_truncated
        truncation_completed truncation_intent_removed detached_segment_removed unknown_files_ignored
        half_created_file_removed deleted_topics_not_trusted queue_list_not_trusted flushed_mark_not_trusted
        timer_recovered timer_files_rejected timer_slots_corrected timer_queue_offset_corrected timer_rebuild
        epochs_cut epoch_file_broken compacted_parts_dropped queue_continues_after_compacted""",
    "a change of our own role, master, leader or place, of which others decide by a vote or a lease": """
        role_change role_changed role_changed_to role_change_failed membership_failed broker_id_assigned no_leases
        controller_leader_found controllers_refused sync_state_set sync_state_set_refused sync_state_set_unknown
        required_acks raft_leader epoch_begun master_changed master_seen handover_fetched handover_pushed ha_sessions
        ha_protocol brokers_forgotten""",
    "work of our own at its own pace: a period, or a pause before the next try": """
        archive_claimed archive_cut archive_gap archive_deleted
        periodic_work_failed heartbeat_unanswered heartbeat_failed members_unknown controller_not_found
        master_not_followed master_not_asked registered unregistered register_failed unregister_failed auth_followed
        auth_not_followed slave_synchronized table_synchronized table_not_synchronized replicas_missing sample_failed
        metrics metrics_exported_again metrics_not_exported metrics_not_encoded requests_refused users_not_read
        sync_route_not_read sync_not_read tls_reloaded tls_kept accounts_kept timer_progress timer_postponed
        timer_turn_failed delivery_postponed revive_postponed revive_queue_shorter pop_buffer_not_written
        half_escape_postponed transaction_check_postponed transaction_check_failed transaction_given_up
        no_producer_to_ask half_message_not_copied half_messages_expired op_messages_not_written cold_scan_slow
        token_keys_read token_keys_fetched token_keys_kept""",
    "our own disk, clock and files": """
        disk_failed config_not_saved checkpoint_left_out checkpoint_postponed confirm_mark_disabled
        flushed_mark_disabled prepared_segment_dropped prepared_segment_not_removed index_rebuild records_not_indexed
        index_file_created index_file_removed index_not_flushed index_waits segment_detached cleaning_failed
        nothing_to_remove leases_not_read file_not_removed space_still_held queue_not_trimmed timer_log_file_removed
        timer_slot_ends_early clock_stepped_back compacted compaction_failed compacted_not_removed
        messages_lost_before_compaction""",
    "once for each record, lease or metric, up to a limit": "record_damaged lease_ignored metric_series_dropped",
    "the audit log, which has a limit of its own (auditLinesPerSecond)": "access access_left_out",
}
OWN_LINES = frozenset(event for events in _BY_REASON.values() for event in events.split())
