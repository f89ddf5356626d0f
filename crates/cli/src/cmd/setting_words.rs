//! Settings in the words of `--set`.

use anyhow::{Result, bail};
use pathline_advise::ArmEnv;

/// `A=1 B=2` as variables.
pub(super) fn parse_settings(words: &str) -> Result<ArmEnv> {
    let mut env = ArmEnv::new();
    for word in words.split_whitespace() {
        match word.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                env.insert(name.to_owned(), value.to_owned());
            }
            _ => bail!("--set '{words}': expected NAME=VALUE, several separated by blanks"),
        }
    }
    if env.is_empty() {
        bail!("--set: expected NAME=VALUE");
    }
    Ok(env)
}
