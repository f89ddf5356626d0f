//! Files about jobs: scripts of placements, matrices of communication, answers of `pathline advise`, rows of
//! the tuner.

use pathline_advise::{
    AdviceFile, AdviceLimits, ArmEnv, CommandLog, JobScript, answers_text, script_findings,
    stated_settings,
};
use pathline_flow::MachineDesc;
use pathline_schema::Bytes;
use pathline_tuner::{TunerRows, tuner_rows_text};

/// Words of the script of a placement.
pub(crate) const PLAN: &[&str] =
    &["0) ", "cpus=", "0-7,64", " gpu=", " ;;", " # 0000:c1:00.0", "\n", "*)"];

pub(crate) fn plans() -> Vec<Vec<u8>> {
    let plan = "#!/bin/sh\ncase \"$rank\" in\n0) cpus=49-55 gpu=0 ;; # 0000:c1:00.0\n1) cpus=1,3 ;;\nesac\n";
    vec![plan.as_bytes().to_vec()]
}

/// A plan has ranks, each once and with CPUs.
pub(crate) fn plan(input: &[u8]) -> String {
    let ranks = match pathline_place::read_plan(&String::from_utf8_lossy(input)) {
        Ok(ranks) => ranks,
        Err(error) => return error.to_string(),
    };
    assert!(ranks.iter().all(|rank| !rank.cpus.is_empty()));
    let numbers: std::collections::BTreeSet<u32> = ranks.iter().map(|r| r.local_rank).collect();
    assert_eq!(numbers.len(), ranks.len());
    format!("read {}", ranks.len())
}

/// Words of matrices and patterns of communication.
pub(crate) const MATRIX: &[&str] = &[
    ",",
    ";",
    "\t",
    "\n",
    "\"r0\"",
    "# ",
    "1e18",
    "nan",
    "%%MatrixMarket matrix ",
    "# POINT TO POINT\n",
    "from,to,bytes\n",
    " bytes\t",
    "coordinate ",
    "array ",
    "real ",
    "pattern ",
    "symmetric\n",
    "2 2 2\n",
    "4096",
    "grid 2x4 periodic",
    "tp=2,pp=2,dp=2",
    "exchange",
];

pub(crate) fn matrices() -> Vec<Vec<u8>> {
    let seeds = [
        "0,5,0\n7,0,0\n1,0,0\n",
        ",r0,r1\nr0,0,5\nr1,7,0\n",
        "%%MatrixMarket matrix coordinate real general\n% c\n3 3 3\n1 2 5.0\n2 1 7\n3 1 1\n",
        "%%MatrixMarket matrix array integer symmetric\n2 2\n0\n7\n0\n",
        "# POINT TO POINT\nE\t0\t1\t108 bytes\t27 msgs sent\t0,27,0\n# OSC\nR\t0\t1\t64 bytes\t1 msgs sent\n",
        "from,to,bytes\n0,1,5\n1,0,7\n",
        "grid 2x4 periodic",
        "tp=2,pp=2,dp=2",
    ];
    seeds.map(|seed| seed.as_bytes().to_vec()).to_vec()
}

pub(crate) const SENDS: &[&str] = &[
    "n:1:2 [0] NCCL INFO ",
    "comm 0x1 rank 0 nranks 2 cudaDev 0 commId 0xa - Init START\n",
    "Send: opCount 1 count 10 datatype 7 root 1 comm 0x1\n",
    " commId ",
    " rank ",
    " nranks ",
    " root ",
    " count ",
    " datatype 11 ",
    "0x2",
    ":",
    "-1",
];

pub(crate) fn nccl_sends() -> Vec<Vec<u8>> {
    let start = |rank: u32| {
        format!(
            "n:{rank}:2 [{rank}] NCCL INFO comm 0x{rank} rank {rank} nranks 2 cudaDev {rank} busId 1 commId 0xa - Init \
             COMPLETE\n"
        )
    };
    let call = "n:0:2 [0] NCCL INFO Send: opCount 1a sendbuff (nil) recvbuff 0x7 count 1000 datatype 7 op 0 root 1 \
                comm 0x0 [nranks=2] stream 0x9\n";
    vec![format!("{}{}{call}", start(0), start(1)).into_bytes()]
}

pub(crate) const TRACE: &[&str] = &[
    "{\"name\": \"Send\", \"cat\": \"P2P\", \"ph\": \"b\", ",
    "\"args\": {",
    "\"CommHash\": 8, ",
    "\"Rank\": 1, ",
    "\"Peer\": 2, ",
    "\"Count\": 7, ",
    "\"Datatype\": \"ncclFloat8e4m3\"",
    "}},\n",
    "18446744073709551615",
    ",",
];

pub(crate) fn nccl_traces() -> Vec<Vec<u8>> {
    let trace = "[\n{\"name\": \"Send\", \"cat\": \"P2P\", \"ph\": \"b\", \"id\": 0, \"pid\": 3, \"tid\": 1, \"ts\": 1.0, \"args\": \
                 {\"CommHash\": 127, \"Rank\": 0, \"Peer\": 1, \"Count\": 10, \"Datatype\": \"ncclFloat32\", \
                 \"nChannels\": 16}},\n{}]\n";
    vec![trace.as_bytes().to_vec()]
}

/// Messages of a matrix or a pattern are between its ranks, and have bytes.
pub(crate) fn matrix(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    if let Ok(pattern) = text.parse::<pathline_place::PhasePattern>() {
        assert_eq!(pattern.to_string().parse(), Ok(pattern.clone()));
        let traffic = pattern.traffic(pattern.ranks().unwrap_or(8), Bytes(1));
        return format!("{:?}", traffic.map(|traffic| traffic.messages().len()));
    }
    match pathline_place::read_matrix(&text) {
        Ok(traffic) => {
            let sound = |m: &pathline_place::RankMessage| {
                m.from.max(m.to) < traffic.ranks() && m.from != m.to && m.bytes > 0
            };
            assert!(traffic.messages().iter().all(sound));
            format!("read {}", traffic.messages().len())
        }
        Err(error) => error.to_string(),
    }
}

/// A file of answers with each kind of arm.
pub(crate) fn advice_files() -> Vec<Vec<u8>> {
    let case = "r0.numa0.pinned > r0.gpu0.vram by dma@gpu0 x 64MiB";
    let arm = |task: &str| format!(r#"{{"label":"x","task":{task},"env":{{"A":"1","B":""}}}}"#);
    let answer = |task: &str| {
        format!(
            r#"{{"subject":"s, 1MiB","verdict":"proven","reason":"r","baseline":{0},"choice":{{"arm":{0},
            "action":"Set A=1","settings":{{"A":"x y"}},"guards":[[{0},{0}]]}},
            "gain":{{"gain":0.1,"low":0.05,"high":0.2,"blocks":9}},"screened":[{{"label":"x","gain":null}}]}}"#,
            arm(task)
        )
    };
    let (of_case, of_command) = (answer(&format!(r#"{{"case":"{case}"}}"#)), answer("\"command\""));
    let text = format!(
        r#"{{"format":1,"origin":{{"node":"n","parts":["p"],"date":"d","version":"0","command":[],
        "simulated":false}},"task":{{"command":"c","metric":"x","higher":true}},"answers":[{of_case},{of_command}]}}"#
    );
    vec![text.into_bytes()]
}

/// What is read can be written and read again, and no text of it leaves its comment.
pub(crate) fn advice(input: &[u8]) -> String {
    let file = match AdviceFile::parse(&String::from_utf8_lossy(input)) {
        Ok(file) => file,
        Err(error) => return error.to_string(),
    };
    let again = AdviceFile::parse(&file.text()).expect("what was written is read");
    assert_eq!(again.text(), file.text());
    let lines = answers_text(&file.answers, &AdviceLimits::default(), 80);
    let script = file.env_text(Some("plugin.so"));
    file.questions_again();
    format!(
        "read: {} {}",
        lines.lines().count().min(9),
        script.is_ok_and(|script| script.contains("contradicted"))
    )
}

/// Words of the log of NCCL.
pub(crate) const COMMAND_LOG: &[&str] = &[
    " NCCL INFO ",
    "NCCL_ALGO",
    "NCCL_IGNORE_CPU_AFFINITY",
    " set by environment to ",
    "Invalid value ",
    " Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}",
    "TUNER/pathline: 9 collectives: 3 as a row says,",
    "\n",
];

pub(crate) fn command_logs() -> Vec<Vec<u8>> {
    let text = "n:1:2 [0] NCCL INFO NCCL_IGNORE_CPU_AFFINITY set by environment to 0.\n\
                n:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n\
                n:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n\
                n:1:2 [0] NCCL INFO TUNER/pathline: 9 collectives: 3 as a row says, 1 where\n";
    vec![text.as_bytes().to_vec()]
}

/// A setting whose log equals that of the default either shows nothing or does not act, or is no choice.
pub(crate) fn command_log(input: &[u8]) -> String {
    let log = CommandLog::read(&String::from_utf8_lossy(input));
    let settings = ArmEnv::from([("NCCL_ALGO".to_owned(), "Ring".to_owned())]);
    match log.judge(&log, &settings) {
        Some(Ok(shown)) => {
            assert_eq!(shown, "NCCL_ALGO read", "the same choice is no effect");
            format!("read: {shown}")
        }
        Some(Err(why)) => format!("read: {}", why.len().min(9)),
        None => "nothing".to_owned(),
    }
}

/// Words of rows of the tuner.
pub(crate) const TUNER_ROWS: &[&str] = &[
    ",",
    "\n",
    "# ",
    "broadcast",
    "reducescatter",
    "allreduce,0,1,ring,ll,0,1,8\n",
    "nvls_tree",
    "collnet_direct",
    "pat",
    "ll128",
    "simple",
    "18446744073709551615",
    "127",
    "-1",
];

pub(crate) fn tuner_row_files() -> Vec<Vec<u8>> {
    let rows = "# collective,least,most,algorithm,protocol,channels,nodes,ranks\n\
                allreduce,0,65536,tree,ll,0,1,8\nallgather,1,18446744073709551615,nvls,simple,16,-1,-1\n";
    vec![rows.as_bytes().to_vec()]
}

/// Rows that are read are written as rows that give them back, and order their sizes.
pub(crate) fn tuner_rows(input: &[u8]) -> String {
    let read = match TunerRows::parse(&String::from_utf8_lossy(input)) {
        Ok(read) => read,
        Err(error) => return error.to_string(),
    };
    assert!(read.rows.iter().all(|row| row.least_bytes <= row.most_bytes && row.channels < 128));
    let again = TunerRows::parse(&tuner_rows_text("", &read.rows));
    assert_eq!(again.map(|again| again.rows), Ok(read.rows.clone()));
    format!("read {}", read.rows.len().min(9))
}

/// Words of job scripts.
pub(crate) const SCRIPT: &[&str] = &[
    "#SBATCH ",
    "#PBS -l select=2",
    "srun ",
    "mpirun --mca ",
    "module load ",
    "cray-mpich",
    "export ",
    " -x ",
    "NCCL_ALGO=",
    "NCCL_IB_TIMEOUT=",
    "UCX_TLS=^",
    "MPICH_",
    "--gpu-bind=",
    "--gpus-per-task=1",
    "-N2 -n8",
    "map_cpu:",
    "mask_cpu:0x",
    "ROCR_VISIBLE_DEVICES=$SLURM_LOCALID",
    "\\\n",
    "<<EOF\n",
    ",",
    "\"",
    "'",
    "\n",
];

pub(crate) fn scripts() -> Vec<Vec<u8>> {
    let script = "#SBATCH -N 2 --ntasks-per-node=8\nmodule load cray-mpich rocm/7.13.0\nexport NCCL_AGLO=Ring \
                  UCX_TLS=rc OMPI_MCA_pml=ucx\nROCR_VISIBLE_DEVICES=$SLURM_LOCALID srun --gpus-per-task=1 \
                  --cpu-bind=map_cpu:1,9,17,25,33,41,49,57 ./a\n";
    vec![script.as_bytes().to_vec()]
}

/// Each answer is about the script, with a reason.
pub(crate) fn script(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let node = MachineDesc::preset("mi250x").map(|machine| machine.topology()).ok();
    let script = JobScript::read(&text);
    let stated = stated_settings(&script);
    assert!(stated.len() <= script.settings.len());
    let found = script_findings(&script, node.as_ref());
    let all = stated.iter().chain(&found).map(|answer| {
        assert!(!answer.reason.is_empty() && !answer.subject.is_empty());
        answer.verdict.word()
    });
    format!("read: {}", all.collect::<Vec<_>>().join(" "))
}
