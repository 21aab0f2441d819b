//! The Python package, its synchronous and its asynchronous half.
#![forbid(unsafe_code)]

roost_e2b_suite::scripts! { python:
    commands => "test_commands",
    commands_async => "test_commands_async",
    files => "test_files",
    files_async => "test_files_async",
    terminals => "test_terminals",
    transfers => "test_transfers",
    watches => "test_watches",
}
