//! The JavaScript package.
#![forbid(unsafe_code)]

roost_e2b_suite::scripts! { javascript:
    commands => "commands.test.cjs",
    terminals => "terminals.test.cjs",
}
