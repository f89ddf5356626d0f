//! The placement of `pathline place` as a choice of `pathline advise --command`.

use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use pathline_advise::{AdviceChoice, AdviceFile, AdviceVerdict, ArmEnv, ArmTask, TrialArm};
use pathline_place::{
    LauncherKind, PlaceRequest, PlacementPlan, launch_text, place_ranks, rankfile_text,
};
use pathline_runner::HostSurvey;
use pathline_schema::{Topology, UnwritableText, shell_word};
use rustix::fs::{MemfdFlags, memfd_create};

/// The variable with the wrapper of each rank.
const VARIABLE: &str = "PATHLINE_PLACE";
/// Names of the files of a proven placement.
const WRAPPER: &str = "place.sh";
const SLURM: &str = "place-slurm.sh";
const RANKFILE: &str = "rankfile";

/// The wrapper that gives each rank its GPU and CPUs, in memory while trials run.
pub(super) struct TrialPlacement {
    topology: Topology,
    plan: PlacementPlan,
    script: File,
}

impl TrialPlacement {
    /// For a command that starts this many ranks on this node.
    pub(super) fn new(ranks: u32, command: &str) -> Result<Self> {
        if !command.contains(VARIABLE) {
            bail!(
                "--place: put ${VARIABLE} before the program in --command, as in \
                 'mpirun -n {ranks} ${VARIABLE} ./app'; it is empty without the placement"
            );
        }
        let topology = HostSurvey::new(None).topology;
        let (skip_first_core, hardware_threads) = (false, false);
        let plan =
            place_ranks(&topology, &PlaceRequest { ranks, skip_first_core, hardware_threads })?;
        let memory = memfd_create("pathline-place", MemfdFlags::CLOEXEC);
        let mut script = File::from(memory.context("no memory for the script of --place")?);
        script.write_all(launch_text(&topology, &plan, LauncherKind::Env, false)?.as_bytes())?;
        Ok(Self { topology, plan, script })
    }

    pub(super) fn choice(&self) -> AdviceChoice {
        let ranks = self.plan.ranks.len();
        // Ranks are processes of this user on this host, which may open it.
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.script.as_raw_fd());
        let env = ArmEnv::from([(VARIABLE.to_owned(), format!("/bin/sh {path}"))]);
        let label = format!("{ranks} ranks as pathline place");
        AdviceChoice {
            arm: TrialArm { label, task: ArmTask::Command, env: env.clone() },
            action: format!("Start each rank by the wrapper of `pathline place --ranks {ranks}`"),
            cost: String::new(),
            settings: env,
            guards: Vec::new(),
            ignored: None,
            nodes: 1,
        }
    }

    /// Writes the wrapper, the line for Slurm and the rankfile of Open MPI if the placement is proven, makes the
    /// answers name the wrapper, and returns the names of the files.
    pub(super) fn write(
        &self,
        dir: &Path,
        file: &mut AdviceFile,
    ) -> std::io::Result<Vec<&'static str>> {
        let is_placement = |choice: &AdviceChoice| choice.settings.contains_key(VARIABLE);
        let mut is_proven = false;
        let path = dir.join(WRAPPER).display().to_string();
        let wrapper = format!("/bin/sh {path}");
        for answer in &mut file.answers {
            let Some(choice) = answer.choice.as_mut().filter(|choice| is_placement(choice)) else {
                continue;
            };
            is_proven |= answer.verdict == AdviceVerdict::Proven;
            for env in [&mut choice.settings, &mut choice.arm.env] {
                env.insert(VARIABLE.to_owned(), wrapper.clone());
            }
        }
        if !is_proven {
            return Ok(Vec::new());
        }
        // A shell splits the value of the variable at blanks, and takes quotes in it for letters.
        if shell_word(&path) != path {
            let (what, expected) = ("a word of $PATHLINE_PLACE", "a plain folder for --emit");
            return Err(Error::other(UnwritableText::new(what, &path, expected)));
        }
        let script = |launcher| {
            launch_text(&self.topology, &self.plan, launcher, false).map_err(Error::other)
        };
        std::fs::write(dir.join(WRAPPER), script(LauncherKind::Env)?)?;
        std::fs::write(dir.join(SLURM), script(LauncherKind::Slurm)?)?;
        std::fs::write(dir.join(RANKFILE), rankfile_text(&self.topology, &self.plan))?;
        Ok(vec![WRAPPER, SLURM, RANKFILE])
    }
}
