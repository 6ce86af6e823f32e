"""The tests that Kopf 1.45 is expected to fail, with the reasons for the intended differences.

`conftest.py` reads it when the tests run with the interpreter of Kopf 1.45. Every entry is described in
``docs/compatibility.md`` too.
"""

IN_REFERENCE: dict[str, str] = {
    "test_without_permissions_for_the_status_all_else_works": (
        "each request for the status is repeated for a minute there, and then the status is lost"
    ),
    "test_missing_file_is_an_error": "a missing file is a traceback with the exit code 1 there",
    "test_only_http_is_served": "a wrong scheme is a traceback with the exit code 1 there",
    "test_a_second_interrupt_ends_the_process_at_once": "further signals change nothing there",
    "test_all_is_indexed_before_anything_is_handled": (
        "a worker limit below the number of the objects blocks the operator there"
    ),
    "test_filter_that_fails_at_the_start_does_not_block_the_operator": (
        "such a filter blocks the operator there until its object changes"
    ),
    "test_kind_that_gets_another_preferred_version_is_served_in_that_one": (
        "a changed kind is looked at once there, before the server's discovery has followed"
    ),
    "test_objects_of_a_deleted_kind_are_handled_until_they_are_gone": (
        "the kind is not watched any more there as soon as its CRD is being deleted"
    ),
    "test_an_unavailable_api_does_not_affect_other_kinds": "the operator exits after a minute there",
    "test_an_operator_starts_within_seconds_although_an_api_is_unavailable": (
        "the operator exits after a minute there"
    ),
    "test_nothing_of_a_deleted_object_is_written_into_its_successor": (
        "the successor gets the results of the deleted object there, and is not handled"
    ),
    "test_no_change_handler_is_called_for_the_last_states_of_a_deleted_object": (
        "handlers are called for them there"
    ),
    "test_objects_that_vanish_unseen_leave_the_indices": "such objects stay in the indices there",
    "test_initial_objects_are_streamed_if_the_server_can": "a refusal of streaming ends the operator there",
    "test_forbidden_list_is_tried_again_until_the_permission_comes": (
        "a forbidden list ends the operator there"
    ),
    "test_result_that_is_not_json_is_an_error_of_that_handler": (
        "such a result is lost there, and the handler counts as succeeded"
    ),
    "test_malformed_essence_is_healed_and_the_object_is_handled": (
        "an annotation that is not JSON throttles its object forever there"
    ),
    "test_malformed_progress_is_healed_and_the_handler_runs": (
        "an annotation that is not JSON throttles its object forever there"
    ),
    "test_strange_progress_is_read_as_far_as_it_goes": (
        "records with a wrong or naive date throttle their object forever there"
    ),
    "test_idle_timer_is_called_once_after_each_change_and_ends_with_its_object": (
        "idle-only timers never end there"
    ),
    "test_daemon_that_returns_is_not_started_again_and_holds_nothing": (
        "the finalizer goes only with the next event there"
    ),
    "test_errors_are_retried_and_a_failed_daemon_is_left_alone": (
        "the finalizer goes only with the next event there"
    ),
    "test_timer_without_an_interval_is_called_once": "the finalizer goes only with the next event there",
    "test_deletion_waits_for_a_thread_and_not_for_the_next_look": "it waits for the next look there",
    "test_initial_delays_may_be_functions_and_their_errors_are_seen": "such errors are silent there",
}
