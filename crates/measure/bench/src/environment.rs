//! Environment variables that GPU runtimes read at their start: cases that need different values
//! need different processes.

use std::collections::BTreeMap;

use pathline_schema::{Case, CopyAgent, FaultHandling, Flow, Topology, Transport, UcxSetting};

use crate::needs::page_faults;
use crate::plan::{PlannedCase, RunPlan, number_groups};

/// A setting that a case needs at the start of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuntimeNeed {
    /// Copies by copy engine (SDMA) if true, by the runtime's copy kernel if false. On by default.
    CopyEngine,
    /// GPU page faults are served if true; if false, managed host memory is read in place.
    PageFaults,
}

impl RuntimeNeed {
    /// The variable of the setting, where the runtime of this node has one.
    fn variable(self, topology: &Topology) -> Option<&'static str> {
        topology.gpu_env(|caps| match self {
            Self::CopyEngine => caps.copy_engine_env,
            Self::PageFaults => caps.page_fault_env,
        })
    }
    /// The runtime's default, where it is the same everywhere.
    fn default(self) -> Option<bool> {
        (self == Self::CopyEngine).then_some(true)
    }
}

impl RunPlan {
    /// Skips messages whose copy agent the variables in `set` rule out, and blit copies where they keep
    /// copy engines on, as a real node does. For models, which give each case what it needs in one
    /// process.
    pub fn with_refused_settings(
        mut self,
        topology: &Topology,
        set: &BTreeMap<String, String>,
    ) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| entry.skip.is_none()) {
            let blit = |flow: &Flow| {
                let agent = flow.by.facts().copy_agent.filter(|_| flow.src.unit != flow.dst.unit);
                agent.filter(|agent| *agent == CopyAgent::Kernel)
            };
            let wanted = message_agent(&entry.case).or_else(|| entry.case.flows().find_map(blit));
            entry.skip = wanted.and_then(|wanted| refused_agent(wanted, topology, set));
        }
        self
    }

    /// Gives each case the variables that its process needs on this node, except those in `set`,
    /// which do not change. A case that needs two values at once is skipped. Cases with the same
    /// environment become adjacent.
    pub fn with_environments(
        mut self,
        topology: &Topology,
        set: &BTreeMap<String, String>,
    ) -> Self {
        let needs_none = |need: RuntimeNeed| need.variable(topology).is_none();
        let sets_ucx = |entry: &PlannedCase| entry.case.flows().any(|f| ucx_setting(f).is_some());
        if needs_none(RuntimeNeed::CopyEngine)
            && needs_none(RuntimeNeed::PageFaults)
            && !self.entries.iter().any(sets_ucx)
        {
            return self;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.skip.is_none()) {
            match environment(&entry.case, topology) {
                Ok(mut env) => {
                    // MPI does not report which agent copied, so a wrong one would not be seen.
                    let wanted = message_agent(&entry.case);
                    entry.skip = wanted
                        .and_then(|wanted| refused_agent(wanted, topology, set))
                        .or_else(|| refused_setting(&env, set));
                    env.retain(|name, _| !set.contains_key(name));
                    entry.env = env;
                }
                Err(why) => entry.skip = Some(why),
            }
        }
        // Stable: within an environment the order is that of the suites.
        self.entries.sort_by(|a, b| a.env.cmp(&b.env));
        number_groups(&mut self.entries);
        self
    }
}

/// The copy agent that the messages of a case name.
fn message_agent(case: &Case) -> Option<CopyAgent> {
    case.flows().find_map(|flow| flow.by.wire()?.agent)
}

/// Why the variables of the user rule out an agent of copies between GPUs.
fn refused_agent(
    wanted: CopyAgent,
    topology: &Topology,
    set: &BTreeMap<String, String>,
) -> Option<String> {
    let wants_engine = wanted == CopyAgent::Engine;
    let all = RuntimeNeed::CopyEngine.variable(topology)?;
    // The variable for copies between GPUs turns engines off where the other leaves them on.
    let peers = topology.gpu_env(|caps| caps.peer_engine_env);
    let peers_off = peers.filter(|name| set.get(*name).is_some_and(|value| value == "0"));
    let all_on = set.get(all).map(|value| value != "0");
    let name = match (wants_engine, all_on, peers_off) {
        (true, Some(false), _) | (false, Some(true), None) => all,
        (true, _, Some(peers)) => peers,
        _ => return None,
    };
    let other = if wants_engine { "1" } else { "0" };
    Some(format!("{name} is set, and this case needs {name}={other}; unset it to measure both"))
}

/// The setting of UCX that the processes of an MPI need at their start.
fn ucx_setting(flow: &Flow) -> Option<UcxSetting> {
    let wire = flow.by.wire().filter(|wire| wire.via.carrier() == Transport::Mpi)?;
    wire.switch
}

/// Why a variable of the user rules out a setting of UCX.
fn refused_setting(
    needed: &BTreeMap<String, String>,
    set: &BTreeMap<String, String>,
) -> Option<String> {
    let of_ucx = needed.iter().filter(|(name, _)| name.starts_with("UCX_"));
    let differs = |(name, value): &(&String, &String)| set.get(*name).is_some_and(|v| v != *value);
    let (name, value) = of_ucx.into_iter().find(differs)?;
    Some(format!("{name} is set, and this case needs {name}={value}; unset it to measure both"))
}

/// The variables that a case needs with other values than the runtime's defaults.
fn environment(case: &Case, topology: &Topology) -> Result<BTreeMap<String, String>, String> {
    let mut needs: BTreeMap<RuntimeNeed, bool> = BTreeMap::new();
    for (need, value) in case.flows().filter_map(need) {
        let Some(name) = need.variable(topology) else { continue };
        if needs.insert(need, value).is_some_and(|other| other != value) {
            return Err(format!(
                "its flows need {name}=0 and {name}=1, which one process cannot have; measure \
                 them one by one"
            ));
        }
    }
    needs.retain(|need, value| need.default() != Some(*value));
    let text = |value: bool| if value { "1" } else { "0" }.to_owned();
    let named = |(need, value): (RuntimeNeed, bool)| {
        Some((need.variable(topology)?.to_owned(), text(value)))
    };
    let mut env: BTreeMap<String, String> = needs.into_iter().filter_map(named).collect();
    for (name, value) in case.flows().filter_map(ucx_setting).map(UcxSetting::variable) {
        if env.insert(name.clone(), value.to_owned()).is_some_and(|other| other != value) {
            return Err(format!(
                "its flows need two values of {name}, which one process cannot have; measure them \
                 one by one"
            ));
        }
    }
    Ok(env)
}

fn need(flow: &Flow) -> Option<(RuntimeNeed, bool)> {
    // Inside one GPU the runtime always copies by a kernel.
    let agent = flow.by.facts().copy_agent.filter(|_| flow.src.unit != flow.dst.unit);
    let agent = agent.or(flow.by.wire().and_then(|wire| wire.agent));
    let copies = agent.map(|agent| (RuntimeNeed::CopyEngine, agent == CopyAgent::Engine));
    let faults = |how| (RuntimeNeed::PageFaults, how == FaultHandling::Served);
    copies.or_else(|| page_faults(flow).map(faults))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::PlanScope;
    use pathline_schema::{Bytes, Gpu, NumaDomain};

    const BLIT: &str = "gpu0.vram > gpu1.vram by blit@gpu0 x 1MiB";
    const DMA: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB";
    const FAULT: &str = "numa0.managed > gpu0.managed by migrate@gpu0[fault] x 1MiB";
    const ZERO_COPY: &str = "numa0.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 1MiB";
    const LOCAL: &str = "gpu0.vram > gpu0.vram by blit@gpu0 x 1MiB";

    /// Variables and skip of each case, in order.
    fn plan(vendor: &str, cases: &[&str], set: &[(&str, &str)]) -> Vec<(String, String, bool)> {
        let gpu = |index| Gpu {
            index,
            vendor: vendor.to_owned(),
            memory: Bytes::gib(1),
            ..Gpu::default()
        };
        let topology = Topology {
            gpus: vec![gpu(0), gpu(1)],
            numa: vec![NumaDomain::default()],
            ..Topology::default()
        };
        let scope =
            PlanScope { tuned: &crate::tuned::KNOWN, ..PlanScope::new(&topology, Bytes::gib(1)) };
        let patterns: Vec<_> = cases.iter().map(|c| c.parse().unwrap()).collect();
        let set = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let plan = RunPlan::new(&scope, &[], &patterns).unwrap().with_environments(&topology, &set);
        let wanted: Vec<Case> = cases.iter().map(|c| c.parse().unwrap()).collect();
        let planned = plan.entries.iter().filter(|e| wanted.contains(&e.case));
        let switches = |env: &BTreeMap<String, String>| {
            env.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ")
        };
        planned.map(|e| (e.case.to_string(), switches(&e.env), e.skip.is_some())).collect()
    }

    fn switches(vendor: &str, case: &str, set: &[(&str, &str)]) -> String {
        plan(vendor, &[case], set)[0].1.clone()
    }

    #[test]
    fn a_case_has_the_switches_that_it_needs_and_no_other() {
        assert_eq!(switches("amd", BLIT, &[]), "HSA_ENABLE_SDMA=0");
        assert_eq!(switches("amd", DMA, &[]), "");
        assert_eq!(switches("amd", LOCAL, &[]), "");
        assert_eq!(switches("amd", FAULT, &[]), "HSA_XNACK=1");
        assert_eq!(switches("amd", ZERO_COPY, &[]), "HSA_XNACK=0");
        for case in [BLIT, FAULT, ZERO_COPY] {
            assert_eq!(switches("nvidia", case, &[]), "");
        }
    }

    #[test]
    fn user_settings_stay() {
        assert_eq!(switches("amd", BLIT, &[("HSA_ENABLE_SDMA", "1")]), "");
        assert_eq!(switches("amd", FAULT, &[("HSA_ENABLE_SDMA", "1")]), "HSA_XNACK=1");
    }

    /// A plan for two processes with a GPU each.
    fn message(agent: &str, set: &[(&str, &str)]) -> (BTreeMap<String, String>, Option<String>) {
        let gpu = |index| Gpu { index, vendor: "amd".to_owned(), ..Gpu::default() };
        let topology = Topology { gpus: vec![gpu(0), gpu(1)], ..Topology::default() };
        let member = |rank| pathline_schema::RankMember {
            rank: pathline_schema::Rank(rank),
            gpus: vec![rank],
            ways: [(pathline_schema::Transport::Mpi, String::new())].into(),
            ..Default::default()
        };
        let ranks = [member(0), member(1)];
        let scope = PlanScope { ranks: &ranks, ..PlanScope::new(&topology, Bytes::gib(1)) };
        let case =
            format!("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64{agent}] x 1MiB").parse();
        let set = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let plan = RunPlan::new(&scope, &[], &[case.unwrap()]).unwrap();
        let plan = plan.with_environments(&topology, &set);
        let plan =
            plan.with_launched_ranks("mpirun -n 2", &["pathline".to_owned(), "run".to_owned()]);
        let entry = plan.entries.first().unwrap();
        (entry.env.clone(), entry.skip.clone())
    }

    #[test]
    fn a_message_that_names_what_copies_has_its_processes() {
        assert_eq!(message("", &[]), (BTreeMap::new(), None));
        assert_eq!(message(",engine", &[]).1, None);
        // The processes of a launcher keep their environment: the reason is the second command.
        let (env, why) = message(",blit", &[]);
        assert_eq!(env, BTreeMap::from([("HSA_ENABLE_SDMA".to_owned(), "0".to_owned())]));
        let again = "env HSA_ENABLE_SDMA=0 mpirun -n 2 pathline run";
        assert!(why.is_some_and(|why| why.ends_with(again)));
        // In the second run only these cases can be measured.
        let set = [("HSA_ENABLE_SDMA", "0")];
        assert_eq!(message(",blit", &set).1, None);
        let refused = message(",engine", &set).1;
        assert!(refused.is_some_and(|why| why.contains("HSA_ENABLE_SDMA=1")));
        // Copies between GPUs are blit kernels then, too.
        let refused = message(",engine", &[("HSA_ENABLE_PEER_SDMA", "0")]).1;
        assert!(refused.is_some_and(|why| why.contains("HSA_ENABLE_PEER_SDMA=1")));
    }

    #[test]
    fn settings_of_ucx_under_an_mpi_are_variables_of_its_processes() {
        let named = |value: &str| ("UCX_PROTO_ENABLE".to_owned(), value.to_owned());
        assert_eq!(message(",proto-v2", &[]).0, BTreeMap::from([named("y")]));
        let both = [("HSA_ENABLE_SDMA".to_owned(), "0".to_owned()), named("n")];
        assert_eq!(message(",blit,proto-v1", &[]).0, BTreeMap::from(both));
        // A variable that is set has its value already, or excludes the case.
        let set = [("UCX_PROTO_ENABLE", "n")];
        assert_eq!(message(",proto-v1", &set), (BTreeMap::new(), None));
        let refused = message(",proto-v2", &set).1;
        assert!(refused.is_some_and(|why| why.contains("needs UCX_PROTO_ENABLE=y; unset it")));
    }

    #[test]
    fn two_values_at_once_are_a_skip() {
        let both = format!("{BLIT} & gpu1.vram > gpu0.vram by dma@gpu1 x 1MiB");
        assert!(plan("amd", &[&both], &[])[0].2);
        assert!(!plan("nvidia", &[&both], &[])[0].2);
    }

    #[test]
    fn cases_of_one_environment_follow_each_other() {
        let cases = [BLIT, DMA, FAULT, LOCAL, ZERO_COPY];
        let order: Vec<String> = plan("amd", &cases, &[]).into_iter().map(|(_, s, _)| s).collect();
        assert_eq!(order, ["", "", "HSA_ENABLE_SDMA=0", "HSA_XNACK=0", "HSA_XNACK=1"]);
    }

    /// Variables of the user, a case, and what a model refuses; copies inside a GPU and others are free.
    #[test]
    fn a_model_refuses_what_its_settings_rule_out() {
        let engine = DMA;
        for (set, case, expected) in [
            (&[][..], BLIT, ""),
            (
                &[("HSA_ENABLE_SDMA", "1")],
                BLIT,
                "HSA_ENABLE_SDMA is set, and this case needs HSA_ENABLE_SDMA=0",
            ),
            (&[("HSA_ENABLE_SDMA", "0")], BLIT, ""),
            (&[("HSA_ENABLE_SDMA", "1")], LOCAL, ""),
            (&[("HSA_ENABLE_SDMA", "0")], engine, ""),
            (&[("HSA_ENABLE_SDMA", "1"), ("HSA_ENABLE_PEER_SDMA", "0")], BLIT, ""),
            (
                &[("HSA_ENABLE_SDMA", "1"), ("HSA_ENABLE_PEER_SDMA", "1")],
                BLIT,
                "HSA_ENABLE_SDMA is set",
            ),
        ] {
            let gpu = |index| Gpu { index, vendor: "amd".to_owned(), ..Gpu::default() };
            let topology = Topology { gpus: vec![gpu(0), gpu(1)], ..Topology::default() };
            let entry = crate::PlannedCase::new(case.parse().unwrap());
            let old = crate::PlannedCase { skip: Some("earlier".to_owned()), ..entry.clone() };
            let set = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            let plan = RunPlan { entries: vec![entry, old] }.with_refused_settings(&topology, &set);
            let why = plan.entries[0].skip.clone().unwrap_or_default();
            assert!(
                why.starts_with(expected) && why.is_empty() == expected.is_empty(),
                "{case} {set:?}: {why}"
            );
            assert_eq!(plan.entries[1].skip.as_deref(), Some("earlier"));
        }
    }
}
