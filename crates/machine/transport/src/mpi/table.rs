//! The functions of MPI, generic over the handle type: a C `int` in the MPICH family, a pointer
//! elsewhere. One list makes both tables, so the types are right for arrays of handles, handles
//! written through pointers and handles passed by value.

use std::ffi::{c_char, c_int, c_void};

use pathline_dylib::SharedLibrary;

/// A handle of MPI: a communicator, datatype, request, window ...
pub(super) trait MpiHandle: Copy + PartialEq + Default + std::fmt::Debug + 'static {}
impl MpiHandle for c_int {}
impl MpiHandle for usize {}

/// The error callback. The standard passes further arguments, which the C ABIs of Linux let a
/// callee ignore.
pub(super) type OnError<H> = unsafe extern "C" fn(*mut H, *mut c_int);

/// An address argument of MPI.
pub(super) type MpiAddress = *mut c_void;

macro_rules! functions {
    (
        required { $($field:ident = $symbol:literal ($($arg:ty),*);)* }
        optional { $($ofield:ident = $osymbol:literal ($($oarg:ty),*);)* }
    ) => {
        /// MPI's functions. All return an error code.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct Fns<H: MpiHandle> {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $(pub(super) $ofield: Option<unsafe extern "C" fn($($oarg),*) -> c_int>,)*
        }

        #[cfg(test)]
        impl<H: MpiHandle> Fns<H> {
            /// A table in which every entry is this function. It ignores its arguments, which the C
            /// ABIs of Linux allow.
            #[allow(clippy::useless_transmute, reason = "some functions take no argument")]
            pub(super) fn all(of: unsafe extern "C" fn() -> c_int) -> Self {
                Self {
                    // SAFETY: arguments that a callee does not take are left where they are.
                    $($field: unsafe {
                        std::mem::transmute::<unsafe extern "C" fn() -> c_int, unsafe extern "C" fn($($arg),*) -> c_int>(of)
                    },)*
                    // SAFETY: as above.
                    $($ofield: Some(unsafe {
                        std::mem::transmute::<unsafe extern "C" fn() -> c_int, unsafe extern "C" fn($($oarg),*) -> c_int>(of)
                    }),)*
                }
            }
        }

        impl<H: MpiHandle> Fns<H> {
            /// The first of these functions that the library lacks.
            pub(super) fn first_missing(&self, names: &[&'static str]) -> Option<&'static str> {
                let bound = [$(($osymbol, self.$ofield.is_some())),*];
                names.iter().copied().find(|name| bound.contains(&(*name, false)))
            }

            /// Binds all functions; the error lists missing required ones.
            pub(super) fn bind(library: &SharedLibrary) -> Result<Self, String> {
                let missing: Vec<&str> =
                    [$($symbol),*].into_iter().filter(|s| library.symbol(s).is_none()).collect();
                if !missing.is_empty() {
                    return Err(format!("it lacks {}", missing.join(", ")));
                }
                Ok(Self {
                    $($field: {
                        let at = library.symbol($symbol).ok_or(concat!("it lacks ", $symbol))?;
                        // SAFETY: the MPI standard fixes the signature of this symbol; `H` is what
                        // handles are in this library, which its caller found out.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> c_int>(at.as_ptr())
                        }
                    },)*
                    $($ofield: library.symbol($osymbol).map(|at| {
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($oarg),*) -> c_int>(at.as_ptr())
                        }
                    }),)*
                })
            }
        }
    };
}

functions! {
    required {
        init_thread = "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
        initialized = "MPI_Initialized" (*mut c_int);
        finalize = "MPI_Finalize" ();
        abort = "MPI_Abort" (H, c_int);
        comm_rank = "MPI_Comm_rank" (H, *mut c_int);
        comm_size = "MPI_Comm_size" (H, *mut c_int);
        comm_group = "MPI_Comm_group" (H, *mut H);
        group_incl = "MPI_Group_incl" (H, c_int, *const c_int, *mut H);
        group_free = "MPI_Group_free" (*mut H);
        comm_create_group = "MPI_Comm_create_group" (H, H, c_int, *mut H);
        comm_free = "MPI_Comm_free" (*mut H);
        comm_create_errhandler = "MPI_Comm_create_errhandler" (OnError<H>, *mut H);
        comm_set_errhandler = "MPI_Comm_set_errhandler" (H, H);
        error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
        barrier = "MPI_Barrier" (H);
        send = "MPI_Send" (MpiAddress, c_int, H, c_int, c_int, H);
        recv = "MPI_Recv" (MpiAddress, c_int, H, c_int, c_int, H, MpiAddress);
        isend = "MPI_Isend" (MpiAddress, c_int, H, c_int, c_int, H, *mut H);
        irecv = "MPI_Irecv" (MpiAddress, c_int, H, c_int, c_int, H, *mut H);
        wait = "MPI_Wait" (*mut H, MpiAddress);
        waitall = "MPI_Waitall" (c_int, *mut H, MpiAddress);
        test = "MPI_Test" (*mut H, *mut c_int, MpiAddress);
        cancel = "MPI_Cancel" (*mut H);
        bcast = "MPI_Bcast" (MpiAddress, c_int, H, c_int, H);
        reduce = "MPI_Reduce" (MpiAddress, MpiAddress, c_int, H, H, c_int, H);
        allreduce = "MPI_Allreduce" (MpiAddress, MpiAddress, c_int, H, H, H);
        reduce_scatter_block = "MPI_Reduce_scatter_block" (MpiAddress, MpiAddress, c_int, H, H, H);
        allgather = "MPI_Allgather" (MpiAddress, c_int, H, MpiAddress, c_int, H, H);
        alltoall = "MPI_Alltoall" (MpiAddress, c_int, H, MpiAddress, c_int, H, H);
        gather = "MPI_Gather" (MpiAddress, c_int, H, MpiAddress, c_int, H, c_int, H);
        scatter = "MPI_Scatter" (MpiAddress, c_int, H, MpiAddress, c_int, H, c_int, H);
        gatherv = "MPI_Gatherv" (MpiAddress, c_int, H, MpiAddress, *const c_int, *const c_int, H, c_int, H);
        scatterv = "MPI_Scatterv" (MpiAddress, *const c_int, *const c_int, H, MpiAddress, c_int, H, c_int, H);
        allgatherv = "MPI_Allgatherv" (MpiAddress, c_int, H, MpiAddress, *const c_int, *const c_int, H, H);
        alltoallv = "MPI_Alltoallv" (MpiAddress, *const c_int, *const c_int, H, MpiAddress, *const c_int, *const c_int, H, H);
        type_contiguous = "MPI_Type_contiguous" (c_int, H, *mut H);
        type_commit = "MPI_Type_commit" (*mut H);
        type_free = "MPI_Type_free" (*mut H);
    }
    optional {
        reduce_c = "MPI_Reduce_c" (MpiAddress, MpiAddress, i64, H, H, c_int, H);
        allreduce_c = "MPI_Allreduce_c" (MpiAddress, MpiAddress, i64, H, H, H);
        reduce_scatter_block_c = "MPI_Reduce_scatter_block_c" (MpiAddress, MpiAddress, i64, H, H, H);
        win_create = "MPI_Win_create" (MpiAddress, isize, c_int, H, H, *mut H);
        win_free = "MPI_Win_free" (*mut H);
        win_lock_all = "MPI_Win_lock_all" (c_int, H);
        win_unlock_all = "MPI_Win_unlock_all" (H);
        win_flush = "MPI_Win_flush" (c_int, H);
        win_sync = "MPI_Win_sync" (H);
        win_create_errhandler = "MPI_Win_create_errhandler" (OnError<H>, *mut H);
        win_set_errhandler = "MPI_Win_set_errhandler" (H, H);
        put = "MPI_Put" (MpiAddress, c_int, H, c_int, isize, c_int, H, H);
        get = "MPI_Get" (MpiAddress, c_int, H, c_int, isize, c_int, H, H);
        accumulate = "MPI_Accumulate" (MpiAddress, c_int, H, c_int, isize, c_int, H, H, H);
        get_accumulate = "MPI_Get_accumulate" (
            MpiAddress, c_int, H, MpiAddress, c_int, H, c_int, isize, c_int, H, H, H
        );
        fetch_and_op = "MPI_Fetch_and_op" (MpiAddress, MpiAddress, H, c_int, isize, H, H);
        compare_and_swap = "MPI_Compare_and_swap" (
            MpiAddress, MpiAddress, MpiAddress, H, c_int, isize, H
        );
        win_allocate = "MPI_Win_allocate" (isize, c_int, H, H, *mut MpiAddress, *mut H);
        win_create_dynamic = "MPI_Win_create_dynamic" (H, H, *mut H);
        win_attach = "MPI_Win_attach" (H, MpiAddress, isize);
        win_detach = "MPI_Win_detach" (H, MpiAddress);
        get_address = "MPI_Get_address" (MpiAddress, *mut isize);
        win_lock = "MPI_Win_lock" (c_int, c_int, c_int, H);
        win_unlock = "MPI_Win_unlock" (c_int, H);
        win_fence = "MPI_Win_fence" (c_int, H);
        win_start = "MPI_Win_start" (H, c_int, H);
        win_complete = "MPI_Win_complete" (H);
        win_post = "MPI_Win_post" (H, c_int, H);
        win_wait = "MPI_Win_wait" (H);
        ibarrier = "MPI_Ibarrier" (H, *mut H);
        ibcast = "MPI_Ibcast" (MpiAddress, c_int, H, c_int, H, *mut H);
        ireduce = "MPI_Ireduce" (MpiAddress, MpiAddress, c_int, H, H, c_int, H, *mut H);
        iallreduce = "MPI_Iallreduce" (MpiAddress, MpiAddress, c_int, H, H, H, *mut H);
        ireduce_scatter_block = "MPI_Ireduce_scatter_block" (
            MpiAddress, MpiAddress, c_int, H, H, H, *mut H
        );
        iallgather = "MPI_Iallgather" (MpiAddress, c_int, H, MpiAddress, c_int, H, H, *mut H);
        ialltoall = "MPI_Ialltoall" (MpiAddress, c_int, H, MpiAddress, c_int, H, H, *mut H);
        send_init = "MPI_Send_init" (MpiAddress, c_int, H, c_int, c_int, H, *mut H);
        recv_init = "MPI_Recv_init" (MpiAddress, c_int, H, c_int, c_int, H, *mut H);
        start = "MPI_Start" (*mut H);
        startall = "MPI_Startall" (c_int, *mut H);
        request_free = "MPI_Request_free" (*mut H);
        // Persistent collectives of MPI 4.
        barrier_init = "MPI_Barrier_init" (H, H, *mut H);
        bcast_init = "MPI_Bcast_init" (MpiAddress, c_int, H, c_int, H, H, *mut H);
        reduce_init = "MPI_Reduce_init" (
            MpiAddress, MpiAddress, c_int, H, H, c_int, H, H, *mut H
        );
        allreduce_init = "MPI_Allreduce_init" (MpiAddress, MpiAddress, c_int, H, H, H, H, *mut H);
        reduce_scatter_block_init = "MPI_Reduce_scatter_block_init" (
            MpiAddress, MpiAddress, c_int, H, H, H, H, *mut H
        );
        allgather_init = "MPI_Allgather_init" (
            MpiAddress, c_int, H, MpiAddress, c_int, H, H, H, *mut H
        );
        alltoall_init = "MPI_Alltoall_init" (
            MpiAddress, c_int, H, MpiAddress, c_int, H, H, H, *mut H
        );
        // Non-standard queries of GPU support.
        query_cuda = "MPIX_Query_cuda_support" ();
        query_rocm = "MPIX_Query_rocm_support" ();
        query_hip = "MPIX_Query_hip_support" ();
        query_gpu = "MPIX_GPU_query_support" (c_int, *mut c_int);
    }
}
