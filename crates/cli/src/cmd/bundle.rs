//! `pathline health --bundle`: what a ticket needs, in one archive without secrets.

#[cfg_attr(not(test), expect(dead_code, reason = "the archive comes next"))]
mod secrets;
#[expect(dead_code, reason = "the archive comes next")]
mod ustar;
