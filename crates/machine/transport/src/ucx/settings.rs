//! Settings of UCX for one context.
//!
//! A configuration is changed after it was read and before a context is created from it. From 1.20
//! on UCX passes names that are not its own on to the transports, and refuses names that none of
//! them knows: an accepted change has therefore reached one. Older releases accept every name, and
//! drop names that are not UCP's own. The environment would reach transports there too, but other
//! threads of this process read it.

use std::ffi::CString;

use pathline_hal::{CallError, CallResult};
use pathline_schema::UcxSetting;

use super::api::{Api, OK, UcxHandle};
use super::engine_label;
use super::search::UcpLibrary;

/// A name that exists in no release.
const NO_SUCH: (&str, &str) = ("PATHLINE_KNOWS_NO_SUCH_VARIABLE", "1");
/// `UCS_CONFIG_PRINT_CONFIG`: names and values.
const VALUES: u32 = 1;

/// Applies a setting to the configuration of the next context; returns the result, by its full
/// name. `set` lists the user's variables, which are not changed.
///
/// # Errors
/// The user set it; it has that value already; or this UCX does not know it.
pub(super) fn set(
    ucp: &UcpLibrary,
    config: UcxHandle,
    switch: UcxSetting,
    set: &[String],
) -> CallResult<String> {
    let (name, value) = switch.setting();
    let variable = format!("UCX_{name}=");
    if let Some(own) = set.iter().find(|own| own.starts_with(&variable)) {
        let why = format!("{own} is set for this run, which stays so");
        return Err(refused(ucp, &format!("{variable}{value}"), &why)
            .or_try(format!("start the run without UCX_{name}")));
    }
    set_to(ucp, config, name, value)
}

/// The same for any variable and value.
pub(super) fn set_to(
    ucp: &UcpLibrary,
    config: UcxHandle,
    name: &str,
    value: &str,
) -> CallResult<String> {
    let wanted = format!("UCX_{name}={value}");
    let before = printed(&ucp.api, config, name);
    if !modify(&ucp.api, config, name, value) {
        let why = match &before {
            Some(now) => format!("it has {now} and refuses {value}"),
            None => format!("it knows no UCX_{name}"),
        };
        let way_out =
            "a UCX that is built with such a transport has it; `ucx_info -c -a` lists them";
        return Err(refused(ucp, &wanted, &why).or_try(way_out));
    }
    match (before, printed(&ucp.api, config, name)) {
        (Some(before), Some(now)) if before == now => {
            Err(refused(ucp, &wanted, &format!("it has {now} already, without the setting")))
        }
        (Some(_), Some(now)) => Ok(now),
        _ if takes_anything(ucp) => {
            let why = "this release accepts every name, and passes none on to its transports";
            Err(refused(ucp, &wanted, why).or_try(format!(
                "start a run with {wanted} and `pathline diff` the two, or take UCX 1.20 or later"
            )))
        }
        _ => Ok(wanted),
    }
}

fn refused(ucp: &UcpLibrary, wanted: &str, why: &str) -> CallError {
    let thing = format!("UCX {} with {wanted}", ucp.version);
    CallError::unsupported("ucp_config_modify", thing, why)
}

/// Whether the configuration accepted it.
fn modify(api: &Api, config: UcxHandle, name: &str, value: &str) -> bool {
    let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else { return false };
    // SAFETY: the configuration was read and is not released; both texts live through the call.
    unsafe { (api.config_modify)(config, name.as_ptr(), value.as_ptr()) == OK }
}

/// `UCX_NAME=value` as a configuration prints it, if the variable is UCP's own.
fn printed(api: &Api, config: UcxHandle, name: &str) -> Option<String> {
    let all = engine_label::printed(|stream| {
        // SAFETY: the configuration is not released and the stream is open; there is no title.
        unsafe { (api.config_print)(config, stream, std::ptr::null(), VALUES) };
    })?;
    let variable = format!("UCX_{name}=");
    all.lines().find(|line| line.starts_with(&variable)).map(|line| line.trim_end().to_owned())
}

/// Whether a release accepts names that do not exist.
fn takes_anything(ucp: &UcpLibrary) -> bool {
    let mut config = 0;
    // SAFETY: no prefix and no file are given as null; a handle is stored.
    let status =
        unsafe { (ucp.api.config_read)(std::ptr::null(), std::ptr::null(), &raw mut config) };
    if status != OK {
        return true;
    }
    let took = modify(&ucp.api, config, NO_SUCH.0, NO_SUCH.1);
    // SAFETY: it was read above, and no context is made of it.
    unsafe { (ucp.api.config_release)(config) };
    took
}
