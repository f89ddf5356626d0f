//! Descriptions with some constants changed, and the figures that change with each constant.

use toml::Table;

use crate::desc::{DescError, MachineDesc};
use crate::origin::{ModelConstant, scale_each};

/// A figure moves if it changes by more than this share: rounding changes it by less.
const SAME: f64 = 1e-9;

/// A description, read once, for changes of its constants.
#[derive(Debug, Clone)]
pub struct DescVariants {
    file: String,
    table: Table,
    constants: Vec<ModelConstant>,
    stack: Option<String>,
}

impl DescVariants {
    /// Of a description and its text, which must be the text that it was read from.
    ///
    /// # Errors
    /// The text is no TOML.
    pub fn new(desc: &MachineDesc, text: &str) -> Result<Self, DescError> {
        let file = desc.name.clone();
        let mut table: Table = toml::from_str(text).map_err(|e: toml::de::Error| DescError {
            file: file.clone(),
            reason: e.message().to_owned(),
        })?;
        let stack = desc.stack().map(str::to_owned);
        // Known here, and of no use to a changed description.
        table.remove("origin");
        table.remove("default_stack");
        Ok(Self { file, table, constants: desc.constants().to_vec(), stack })
    }

    /// Leaves out the stacks that the description is not under, which move none of its figures.
    pub fn of_one_stack(mut self) -> Self {
        if let Some(stacks) = self.table.get_mut("stack").and_then(toml::Value::as_table_mut) {
            stacks.retain(|name, _| Some(name) == self.stack.as_deref());
        }
        self
    }

    /// The constants of the description.
    pub fn constants(&self) -> &[ModelConstant] {
        &self.constants
    }

    /// The description with each number under each key multiplied by what `factor` gives for the key. An
    /// integer that is a count or a size stays one: it is rounded, and changes by 1 at least.
    ///
    /// # Errors
    /// A number left its range, or several no longer fit each other.
    pub fn scaled(&self, factor: &dyn Fn(&str) -> f64) -> Result<MachineDesc, DescError> {
        let mut table = self.table.clone();
        scale_each(&mut table, factor);
        let desc = MachineDesc::of_table(&self.file, table)?;
        match &self.stack {
            Some(stack) => desc.with_stack(stack),
            None => Ok(desc),
        }
    }
}

/// What a change of one constant does to a list of figures.
#[derive(Debug, Clone, PartialEq)]
pub struct ConstantEffect {
    /// Index of the constant in [`DescVariants::constants`].
    pub constant: usize,
    /// Number of each figure that moves, ascending, and the logarithm of new over old. Infinite where the
    /// changed description has no such figure.
    pub moved: Vec<(usize, f64)>,
    /// Why the constant cannot be changed so; no figure is known to move then.
    pub refused: Option<String>,
}

/// The value of each named figure on a description, in the order of the names; `None` of a figure that it
/// does not have.
pub type FigureValues<'a> = dyn FnMut(&MachineDesc, &[usize]) -> Vec<Option<f64>> + 'a;

/// Multiplies each of the named constants by `factor` and finds the figures that move.
///
/// `base` has the figures of the description as it is. Constants are changed in groups first, each by a
/// slightly different factor: if a figure keeps its value under the changes of a group, then it does so
/// under each of them, and only groups that move some figure are divided. Of two constants that exclude
/// each other's mechanism the group shows at least the one that remains.
pub fn find_effects(
    variants: &DescVariants,
    of: &[usize],
    factor: f64,
    base: &[Option<f64>],
    values: &mut FigureValues<'_>,
) -> Vec<ConstantEffect> {
    let figures: Vec<usize> = (0..base.len()).filter(|&i| base[i].is_some()).collect();
    let mut search = EffectSearch { variants, factor, base, values, found: Vec::new() };
    // A constant that cannot change so would keep its group from being read: where the whole list cannot, each
    // is tried alone.
    let able = match search.changed(of) {
        Ok(_) => of.to_vec(),
        Err(_) => search.able_alone(of),
    };
    search.divide(&able, &figures);
    search.found.sort_by_key(|effect| effect.constant);
    search.found
}

struct EffectSearch<'a, 'v> {
    variants: &'a DescVariants,
    factor: f64,
    base: &'a [Option<f64>],
    values: &'a mut FigureValues<'v>,
    found: Vec<ConstantEffect>,
}

impl EffectSearch<'_, '_> {
    /// The constants that can change alone; the others are found to be refused.
    fn able_alone(&mut self, constants: &[usize]) -> Vec<usize> {
        let mut able = Vec::new();
        for &constant in constants {
            match self.changed(&[constant]) {
                Ok(_) => able.push(constant),
                Err(why) => self.found.push(without_effect(constant, Some(why.reason))),
            }
        }
        able
    }

    /// Finds the effects of some constants on figures that the constants may move.
    fn divide(&mut self, constants: &[usize], figures: &[usize]) {
        if constants.is_empty() {
            return;
        }
        if figures.is_empty() {
            return self.found.extend(constants.iter().map(|&c| without_effect(c, None)));
        }
        let moved = match self.changed(constants) {
            Ok(desc) => self.moved(&desc, figures),
            Err(why) => match *constants {
                [one] => return self.found.push(without_effect(one, Some(why.reason))),
                // Which of them it is shows when they are changed apart.
                _ => figures.iter().map(|&figure| (figure, f64::INFINITY)).collect(),
            },
        };
        if let [one] = *constants {
            return self.found.push(ConstantEffect { constant: one, moved, refused: None });
        }
        let figures: Vec<usize> = moved.into_iter().map(|(figure, _)| figure).collect();
        let (first, second) = constants.split_at(constants.len() / 2);
        self.divide(first, &figures);
        self.divide(second, &figures);
    }

    fn changed(&self, constants: &[usize]) -> Result<MachineDesc, DescError> {
        let all = self.variants.constants();
        let factor = |key: &str| {
            let nth = constants
                .iter()
                .position(|&c| all.get(c).is_some_and(|constant| constant.key == key));
            match nth {
                // No two changes of a group cancel each other.
                Some(nth) => self.factor.powf(1.0 + nth as f64 * 1e-4),
                None => 1.0,
            }
        };
        self.variants.scaled(&factor)
    }

    fn moved(&mut self, desc: &MachineDesc, figures: &[usize]) -> Vec<(usize, f64)> {
        let values = (self.values)(desc, figures);
        let change = |(&figure, value): (&usize, Option<f64>)| {
            let base = self.base.get(figure).copied().flatten()?;
            let change = match value {
                Some(value) if value == base => 0.0,
                Some(value) if value > 0.0 && base > 0.0 => (value / base).ln(),
                _ => f64::INFINITY,
            };
            (change.abs() > SAME).then_some((figure, change))
        };
        let values = values.into_iter().chain(std::iter::repeat(None));
        figures.iter().zip(values).filter_map(change).collect()
    }
}

fn without_effect(constant: usize, refused: Option<String>) -> ConstantEffect {
    ConstantEffect { constant, moved: Vec::new(), refused }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::{Network, RuntimeEnv};
    use pathline_schema::Case;

    fn search(keys: &[&str], factor: f64, cases: &[&str]) -> (Vec<ConstantEffect>, usize) {
        let (name, text) = MachineDesc::presets()[0];
        let desc = MachineDesc::parse(name, text).unwrap();
        let variants = DescVariants::new(&desc, text).unwrap();
        let cases: Vec<Case> = cases.iter().map(|c| c.parse().unwrap()).collect();
        let all: Vec<usize> = (0..cases.len()).collect();
        let of: Vec<usize> = keys
            .iter()
            .map(|key| variants.constants().iter().position(|c| c.key == *key).unwrap())
            .collect();
        let mut asked = 0;
        let mut values = |desc: &MachineDesc, figures: &[usize]| -> Vec<Option<f64>> {
            asked += 1;
            let network = Network::new(desc, RuntimeEnv::default()).unwrap();
            let time = |&i: &usize| Some(network.durations(&cases[i]).ok()?.set.typical.0);
            figures.iter().map(time).collect()
        };
        let base = values(&desc, &all);
        let mut effects = find_effects(&variants, &of, factor, &base, &mut values);
        for effect in &mut effects {
            effect.constant = of.iter().position(|&c| c == effect.constant).unwrap();
        }
        effects.sort_by_key(|effect| effect.constant);
        (effects, asked)
    }

    /// One engine copies at 50.4 GB/s over four links: 1 GiB takes 21.3 ms, of which all but the start is
    /// the engine's: ln(time) falls by nearly ln(1.02). A kernel's copy does not use the engine, and no
    /// copy between GPUs the host's memory.
    #[test]
    fn each_constant_moves_the_figures_that_it_decides() {
        let engine = "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB";
        let kernel = "gpu0.vram > gpu1.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 1GiB";
        let keys = ["copy_engine.gbs", "host_link.memory_efficiency", "migration.fault_us"];
        let (effects, asked) = search(&keys, 1.02, &[engine, kernel]);
        let [copies, host, faults] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!((host.moved.len(), faults.moved.len()), (0, 0), "{effects:?}");
        assert_eq!(copies.moved[0].0, 0);
        assert_eq!(copies.moved.len(), 1, "{effects:?}");
        let change = copies.moved[0].1 / 1.02f64.ln();
        assert!((-1.0..-0.98).contains(&change), "{change}");
        // The base, all three, the first alone, the other two together.
        assert!(asked <= 4, "{asked} evaluations");
    }

    /// 1.3 x 0.875 is more than the whole.
    #[test]
    fn a_constant_that_cannot_change_so_states_the_reason() {
        let engine = "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB";
        let (effects, _) =
            search(&["gpu_memory.kernel_efficiency", "copy_engine.gbs"], 1.3, &[engine]);
        assert!(effects[0].refused.is_some() && effects[0].moved.is_empty(), "{effects:?}");
        assert!(effects[1].refused.is_none() && effects[1].moved.len() <= 1, "{effects:?}");
    }
}
