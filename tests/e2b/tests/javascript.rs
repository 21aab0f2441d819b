//! The JavaScript package.
#![forbid(unsafe_code)]

roost_e2b_suite::scripts! { javascript:
    commands => "commands.test.cjs",
    files => "files.test.cjs",
    lifecycle => "lifecycle.test.cjs",
    templates => "templates.test.cjs",
    terminals => "terminals.test.cjs",
}
