//! GPUs that the variables of a runtime leave: numbers only, and none of the runtime's rules for wrong ones but that
//! the first ends the list.

use pathline_schema::Gpu;

use crate::spec::StubApi;

/// Reorders and drops GPUs as the environment says. Figures of a copy stay those of the GPU whose number it had.
pub(crate) fn visible(
    mut gpus: Vec<Gpu>,
    api: StubApi,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<Gpu> {
    let outer = match api {
        StubApi::Cuda => "CUDA_VISIBLE_DEVICES",
        StubApi::Hip => "ROCR_VISIBLE_DEVICES",
    };
    if let Some(list) = env(outer) {
        gpus = chosen(&gpus, &list);
    }
    let inner: &[&str] = match api {
        StubApi::Cuda => &[],
        StubApi::Hip => &["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"],
    };
    match inner.iter().find_map(|name| env(name).filter(|list| !list.is_empty())) {
        Some(list) => chosen(&gpus, &list),
        None => gpus,
    }
}

fn chosen(gpus: &[Gpu], list: &str) -> Vec<Gpu> {
    let gpu = |number: &str| gpus.get(number.trim().parse::<usize>().ok()?).cloned();
    list.split(',').map_while(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_count_from_zero() {
        let all: Vec<Gpu> = (0..4).map(|index| Gpu { index, ..Gpu::default() }).collect();
        let left = |api, set: &[(&str, &str)]| {
            let env = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, list)| (*list).to_owned())
            };
            visible(all.clone(), api, &env).iter().map(|gpu| gpu.index).collect::<Vec<_>>()
        };
        let (rocr, hip, cuda) =
            ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES");
        assert_eq!(left(StubApi::Cuda, &[(cuda, "2,0,-1,1"), (rocr, "3")]), [2, 0]);
        assert_eq!(left(StubApi::Cuda, &[(cuda, "")]), [0; 0]);
        assert_eq!(left(StubApi::Hip, &[(rocr, "3,2"), (hip, "1"), (cuda, "0")]), [2]);
        assert_eq!(left(StubApi::Hip, &[(rocr, "3"), (cuda, "3")]), [0; 0]);
        assert_eq!(left(StubApi::Hip, &[]), [0, 1, 2, 3]);
    }
}
