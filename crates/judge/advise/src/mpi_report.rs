//! What MPI libraries report of the variables that they have read.

use std::collections::BTreeMap;

use pathline_schema::{MpiControls, MpiVariable};

use crate::arm::ArmEnv;

/// What the ranks of an arm report of their MPI, in the engine of its series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MpiReport {
    /// Variables that were set, with the values that the library has read.
    read: BTreeMap<String, String>,
    /// `pml ob1 over one of btl self, sm`.
    engine: String,
}

impl MpiReport {
    /// From the engine of a series: `Open MPI v5.0.11: MPI_Isend; pml ob1 over ...; MPI_T reads A=1`.
    pub fn read(engine: &str) -> Self {
        let (engine, read) = engine.split_once(pathline_schema::READ_BACK).unwrap_or((engine, ""));
        let read = read.split([';', '|']).next().unwrap_or("").split(' ');
        let pair = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Self { read: read.filter_map(pair).collect(), engine: engine.to_owned() }
    }

    /// The component after a word of the engine: `ob1` after `pml`.
    fn component(&self, kind: &str) -> Option<&str> {
        let after = self.engine.split(kind).nth(1)?;
        after.split([' ', ',', ';']).next().filter(|name| !name.is_empty())
    }

    /// What shows that the library has read these settings, or why they do not act, with `default` as the report
    /// without them. None if nothing shows it: the library does not list them.
    pub fn judge(
        &self,
        default: &Self,
        changed: &ArmEnv,
        library: &MpiControls,
    ) -> Option<Result<String, String>> {
        let mut shown = Vec::new();
        for (name, asked) in changed {
            let Some(usual) = library.variable(name) else { continue };
            let Some(value) = self.read.get(name) else {
                return Some(Err(format!(
                    "the ranks do not have {name}: MPI_T reads no value of it"
                )));
            };
            let read = MpiVariable { value: value.clone(), ..usual.clone() };
            let is_usual = *value == usual.value;
            match (read.is_set_to(asked), is_usual) {
                (Some(false), _) => {
                    let text = read.value_text();
                    return Some(Err(format!("MPI_T reads {name} as {text}, not {asked}")));
                }
                (None, true) => {
                    return Some(Err(format!("MPI_T reads {name} as {value}, as without it")));
                }
                _ => shown.push(format!("{name} as {}", read.value_text())),
            }
            if let Some(why) = self.unused(default, name) {
                return Some(Err(why));
            }
        }
        (!shown.is_empty()).then(|| Ok(format!("MPI_T reads {}", shown.join(", "))))
    }

    /// Why a component that does not run cannot be changed by a variable of Open MPI.
    fn unused(&self, default: &Self, name: &str) -> Option<String> {
        let name = name.strip_prefix("OMPI_MCA_")?;
        let (pml, coll) = (self.component("; pml "), self.component("; coll "));
        let is_own = pml == Some("ob1");
        match (name, pml, coll) {
            ("pml", Some(pml), _) if default.component("; pml ") == Some(pml) => {
                Some(format!("messages go by pml {pml} with and without it"))
            }
            ("smsc", Some(_), _) => {
                let copies = |of: &Self| -> Option<String> {
                    let after = of.engine.split("single copies by ").nth(1)?;
                    after.split(';').next().map(str::to_owned)
                };
                let same = is_own && copies(self) == copies(default);
                same.then(|| "single copies are as without it".to_owned())
            }
            (_, Some(pml), _) if !is_own && name.starts_with("btl_") => {
                Some(format!("messages go by pml {pml}, which uses no btl"))
            }
            (_, _, Some(first)) if name.starts_with("coll_") => {
                let own = name.split('_').nth(1)?;
                (own != first).then(|| format!("collectives run by {first}, not by {own}"))
            }
            _ => None,
        }
    }
}
