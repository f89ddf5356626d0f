//! Tables of C functions, bound by name in a library that is never unloaded.

/// Makes a structure of C functions, each a field with its symbol and signature, and its `bind`, whose
/// error names a missing function. Functions marked by `?` may be missing.
///
/// The signatures must be those of the library's header in every release: the caller says why.
macro_rules! c_functions {
    (
        $(#[$meta:meta])* $vis:vis $name:ident;
        $($field:ident = $symbol:literal ($($arg:ty),*) $(-> $out:ty)?;)*
        $(? $ofield:ident = $osymbol:literal ($($oarg:ty),*) $(-> $oout:ty)?;)*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        $vis struct $name {
            $($vis $field: unsafe extern "C" fn($($arg),*) $(-> $out)?,)*
            $($vis $ofield: Option<unsafe extern "C" fn($($oarg),*) $(-> $oout)?>,)*
        }
        impl $name {
            $vis fn bind(library: &pathline_dylib::SharedLibrary) -> Result<Self, String> {
                Ok(Self {
                    $($field: {
                        let at = library.symbol($symbol).ok_or(concat!("it lacks ", $symbol))?;
                        // SAFETY: the symbol is this function in every release of the library, with the
                        // signature of its header, and the library is never unloaded.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $out)?,
                            >(at.as_ptr())
                        }
                    },)*
                    $($ofield: library.symbol($osymbol).map(|at| {
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($oarg),*) $(-> $oout)?,
                            >(at.as_ptr())
                        }
                    }),)*
                })
            }
        }
    };
}
pub(crate) use c_functions;
