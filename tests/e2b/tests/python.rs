//! The Python package, its synchronous and its asynchronous half.
#![forbid(unsafe_code)]

roost_e2b_suite::scripts! { python:
    commands => "test_commands",
    commands_async => "test_commands_async",
    files => "test_files",
    files_async => "test_files_async",
    forks => "test_forks",
    lifecycle => "test_lifecycle",
    lifecycle_async => "test_lifecycle_async",
    pauses => "test_pauses",
    refusals => "test_refusals",
    templates => "test_templates",
    terminals => "test_terminals",
    transfers => "test_transfers",
    watches => "test_watches",
}
