//! Values of options that completions and help list.

use std::ffi::OsStr;

use clap::Arg;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use pathline_flow::MachineDesc;
use pathline_schema::SuiteId;

/// Parses any text, and lists the names that are known, for help and completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownName {
    names: fn() -> Vec<&'static str>,
}

impl KnownName {
    /// Suites.
    pub(crate) const SUITES: Self =
        Self { names: || SuiteId::ALL.iter().map(|suite| suite.word()).collect() };
    /// Simulated machines.
    pub(crate) const MACHINES: Self =
        Self { names: || MachineDesc::presets().iter().map(|(name, _)| *name).collect() };
}

impl TypedValueParser for KnownName {
    type Value = String;
    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}
