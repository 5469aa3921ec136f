//! The `autohaap` command.

fn main() {}
