//! Keeps secrets out of what leaves the host: by the names of what holds them, by their shape, and by the values that
//! this process knows.

use pathline_runner::switches;
use pathline_schema::mask_urls;

/// What stands for a secret.
pub(super) const MASK: &str = "***";

/// Parts of names that hold secrets, whole.
const PARTS: [&str; 15] = [
    "apikey",
    "auth",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "key",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "secrets",
    "token",
];
/// Ends of parts.
const ENDS: [&str; 6] = ["token", "secret", "password", "passwd", "apikey", "secretkey"];
/// How tokens of services begin.
const SHAPES: [&str; 16] = [
    "AIza",
    "AKIA",
    "ASIA",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "npm_",
    "pypi-",
    "sk-",
    "xoxb-",
    "xoxp-",
    "nvapi-",
];
/// A shorter word is no token, and a shorter value is not looked for elsewhere.
const MIN_TOKEN: usize = 16;
const MIN_VALUE: usize = 6;
/// Variables of jobs, which no library reads.
const JOB: [&str; 12] = [
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
    "SLURM_STEP_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
];

/// Secrets that the environment of this process holds, the longest first.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn here() -> Self {
        Self::of(std::env::vars_os().map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        }))
    }

    fn of(variables: impl Iterator<Item = (String, String)>) -> Self {
        // The shell's folders.
        let is_folder = |name: &str| matches!(name, "PWD" | "OLDPWD");
        let held = variables.filter(|(name, _)| is_secret_name(name) && !is_folder(name));
        let mut values: Vec<String> =
            held.map(|(_, value)| value).filter(|value| value.len() >= MIN_VALUE).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// A text without secrets; what is JSON stays JSON.
    pub(super) fn mask(&self, text: &str) -> String {
        let mut text = mask_private_keys(text);
        for value in &self.0 {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), MASK);
            }
        }
        mask_words(&mask_urls(&text))
    }

    /// The variables that libraries and launchers read, a line each.
    pub(super) fn environment(&self) -> String {
        let mut all = switches();
        all.extend(
            JOB.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))),
        );
        let shown = |(name, value): (&String, &String)| match is_secret_name(name) {
            true => format!("{name}={MASK}\n"),
            false => format!("{name}={}\n", self.mask(value).replace('\n', " ")),
        };
        all.iter().map(shown).collect()
    }
}

fn is_secret_name(name: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| {
        let part = part.to_ascii_lowercase();
        PARTS.contains(&part.as_str()) || ENDS.iter().any(|end| part.ends_with(end))
    })
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Masks words that are tokens, and values behind names of secrets: `NAME=VALUE`, `"name": "VALUE"`, `--name VALUE`.
fn mask_words(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_word) {
        let (before, from) = rest.split_at(at);
        let (word, after) = from.split_at(from.find(|c| !is_word(c)).unwrap_or(from.len()));
        masked.push_str(before);
        rest = after;
        let is_token =
            word.len() >= MIN_TOKEN && SHAPES.iter().any(|shape| word.starts_with(shape));
        masked.push_str(if is_token { MASK } else { word });
        if is_secret_name(word)
            && let Some((lead, end)) = value_behind(word, rest)
        {
            masked.push_str(rest.get(..lead).unwrap_or_default());
            masked.push_str(MASK);
            rest = rest.get(end..).unwrap_or_default();
        }
    }
    masked + rest
}

/// Where the value behind a name begins and ends, if one is there.
fn value_behind(name: &str, rest: &str) -> Option<(usize, usize)> {
    let skip = |at: usize, is_part: fn(char) -> bool| {
        let tail = rest.get(at..).unwrap_or_default();
        at + tail.find(|c| !is_part(c)).unwrap_or(tail.len())
    };
    let is_quote = |c: char| matches!(c, '"' | '\'' | '\\');
    let is_space = |c: char| matches!(c, ' ' | '\t');
    let closed = skip(skip(0, is_quote), is_space);
    let mark = rest.get(closed..)?.chars().next()?;
    let begin = match mark {
        '=' | ':' => closed + 1,
        // A word of a command line, or of a list of them.
        ',' if name.starts_with('-') && closed > 0 => closed + 1,
        _ if name.starts_with('-') && closed > 0 => closed,
        _ => return None,
    };
    let open = skip(begin, |c| c.is_ascii_whitespace());
    let quoted = skip(open, is_quote);
    let quote = rest.get(open..quoted)?;
    let tail = rest.get(quoted..)?;
    // A number, a list or a table of JSON.
    if quote.is_empty()
        && mark == ':'
        && tail.starts_with(|c: char| matches!(c, '{' | '[' | '0'..='9' | '-'))
    {
        return None;
    }
    let length = if quote.is_empty() {
        let scheme =
            ["Bearer ", "Basic ", "bearer ", "basic "].iter().find(|s| tail.starts_with(**s));
        let lead = scheme.map_or(0, |scheme| scheme.len());
        let ends = |c: char| {
            c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '&' | '|' | ')' | '\\')
        };
        lead + tail.get(lead..)?.find(ends).unwrap_or(tail.len() - lead)
    } else if quote.len() > 1 {
        tail.find(quote).unwrap_or(tail.len())
    } else {
        closing(tail, quote.chars().next()?)
    };
    (length > 0).then_some((quoted, quoted + length))
}

/// Bytes before a quote that no backslash precedes.
fn closing(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !is_escaped {
            return at;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// Masks private keys from their first line to their last.
fn mask_private_keys(text: &str) -> String {
    const HEAD: &str = "PRIVATE KEY-----";
    let mut masked = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(HEAD) {
        masked += &format!("{before}{HEAD}{MASK}");
        rest = after.find("-----END").map_or("", |at| after.get(at..).unwrap_or_default());
        let end = rest.find(HEAD).map_or(rest.len(), |at| at + HEAD.len());
        masked += rest.get(..end).unwrap_or_default();
        rest = rest.get(end..).unwrap_or_default();
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_names_are_masked_and_the_rest_stays() {
        let none = Secrets(Vec::new());
        for (text, masked) in [
            ("NCCL_TOKEN=abc def", "NCCL_TOKEN=*** def"),
            (r#"{"api_key": "a\"b", "n": 1}"#, r#"{"api_key": "***", "n": 1}"#),
            (r#"["--password","hunter2","-q"]"#, r#"["--password","***","-q"]"#),
            ("run --db-secret hunter2 -q", "run --db-secret *** -q"),
            ("Authorization: Bearer abc.def", "Authorization: ***"),
            (
                r#""env": "{\"password\": \"a b\", \"x\": 1}""#,
                r#""env": "{\"password\": \"***\", \"x\": 1}""#,
            ),
            ("s3://user:pw@host/x?sig=1", "s3://***@host/x?***"),
            ("clone with ghp_0123456789abcdef01", "clone with ***"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nx",
                "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nx",
            ),
        ] {
            assert_eq!(none.mask(text), masked);
            assert_eq!(none.mask(masked), masked, "once more");
        }
        for same in [
            "NCCL_DEBUG=INFO UCX_TLS=rc,cuda UCX_IB_PKEY=0x1",
            r#"{"state":"PASS","key":3,"tokens":[1],"author":"x","case":"copy gpu0>gpu1 64MiB"}"#,
            "Key type dns_resolver registered; bypass=1",
            "key",
            "-----BEGIN PUBLIC KEY-----",
        ] {
            assert_eq!(none.mask(same), same);
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let known = Secrets::of(
            [
                pair("MY_TOKEN", "abcdef"),
                pair("PWD", "/data/x"),
                pair("A_KEY", "abcdefgh"),
                pair("B_PASS", "1"),
            ]
            .into_iter(),
        );
        assert_eq!(known.mask("x abcdefgh-abcdef /data/x 1"), "x ***-*** /data/x 1");
    }

    /// Whatever bytes are around a secret, the value is gone and nothing is cut within a character.
    #[test]
    fn any_text_is_masked() {
        let mut rng = fastrand::Rng::with_seed(40);
        let parts = [
            "password", "=", ":", "\"", "\\", " ", "é", "--key", ",", "'", "\n", "{", "TOKEN", "x",
        ];
        let none = Secrets(Vec::new());
        for _ in 0..20_000 {
            let mut noise = |most| -> String {
                (0..rng.usize(0..most)).map(|_| parts[rng.usize(0..parts.len())]).collect()
            };
            let text = format!("{}\nA_SECRET=HIDDENVALUE\n{}", noise(8), noise(8));
            let masked = none.mask(&text);
            // A quote before it may have taken the whole line as a value.
            assert!(!masked.contains("HIDDENVALUE"), "{text:?}: {masked:?}");
        }
    }
}
