//! Inputs of the sequences of C calls to begin with, and the words of their language.

/// Words of the language, for mutations.
pub(crate) const WORDS: &[&str] = &[
    "gpus 2\n",
    "nopeer\n",
    "node 262144 1048576 -1\n",
    "node 65536 0 0\n",
    "fault 0 40 4\n",
    "fault 0 100+ 4\n",
    "fault 2 1+ 1\n",
    "copy dev0+0 host+0 1048576\n",
    "copy out+0 dev0+0 1048576\n",
    "async dev0+0 host+0 1048576 s1\n",
    "async dev1+0 dev0+0 600000 s3\n",
    "batch s1 dev0+0 host+0 300000 dev0+500000 host+0 300000\n",
    "all host+0 700000 0 dev0+0 s1 1 dev1+0 s3\n",
    "all host+0 700000 0 dev0+0 - 1 dev1+0 -\n",
    "explain dev0+0 host+0 1048576 200\n",
    "alloc 300000 -1\n",
    "attach 300000 400000\n",
    "free 0\n",
    "options 3\n",
    "lists 2\n",
    "stats\n",
    "context 1\n",
    "wait\n",
    "reopen\n",
    "null",
    "page",
    "gone",
    "man",
    "dev1",
    " s0",
    " s2",
    " s4",
    " s5",
    "1099511627776",
];

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let relayed = "gpus 3\nnode 65536 0 -1\nasync dev0+0 host+0 1048576 s1\nasync out+5 dev0+5 900001 s1\n\
                   wait\ncopy dev1+0 out+0 700000\nstats\n";
    let many = "gpus 2\nnode 65536 0 -1\nbatch s1 dev0+0 host+0 300000 dev0+500000 host+0 300000\n\
                all host+0 700000 0 dev0+0 s1 1 dev1+0 s3\nexplain dev0+0 host+0 1048576 40\n";
    let bad = "gpus 2\nnode 262144 0 -1\ncopy null host+0 300000\ncopy dev0+0 dev0+9 300000\n\
               copy dev0+0 host+0 1099511627776\nasync dev0+0 gone+0 300000 s4\n\
               async dev0+0 host+0 300000 s2\nasync dev0+0 page+0 300000 s0\noptions 3\nfree 7\n";
    let own = "gpus 2\nnode 65536 262144 1\nalloc 300000 -1\nalloc 1099511627776 -1\nattach 1 400000\n\
               copy mine0+0 dev0+0 300000\nfree 0\nfree 0\ncontext 9\ncopy dev0+0 host+0 4096\n";
    let faults = "gpus 3\nnode 65536 0 -1\nexplain dev0+0 host+0 1048576 400\nfault 0 12 4\n\
                  async dev0+0 host+0 1048576 s1\nwait\nasync dev0+7 host+0 800000 s1\nreopen\n\
                  copy out+0 host+0 300000\n";
    let direct = "gpus 2\nnopeer\nnode 65536 0 -1\nasync dev0+0 host+0 1048576 s1\nfault 0 3+ 0\n\
                  async dev0+0 host+0 1048576 s1\nwait\ncopy dev0+0 host+0 9\n";
    [relayed, many, bad, own, faults, direct].map(|text| text.as_bytes().to_vec()).to_vec()
}
