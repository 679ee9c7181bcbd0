//! Functions compiled twice: for any processor, and for those with AVX2 and BMI/LZCNT, which are detected at run time.
//!
//! Both are the same source, so they give the same results.

/// Whether this processor has what the second form needs.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_v3() -> bool {
    // Each is looked up once a process, and then a load and a test.
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt")
}

/// Defines a function in both forms.
macro_rules! dispatch {
    (
        $(#[$meta:meta])*
        fn $name:ident $(<const $param:ident: usize>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel takes its state apart")]
        fn $name $(<const $param: usize>)? ($($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            fn portable $(<const $param: usize>)? ($($arg: $type),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
                fn v3 $(<const $param: usize>)? ($($arg: $type),*) $(-> $out)? {
                    portable $(::<$param>)? ($($arg),*)
                }
                if $crate::cpu::is_v3() {
                    // SAFETY: the processor has the instructions that `v3` is compiled for.
                    return unsafe { v3 $(::<$param>)? ($($arg),*) };
                }
            }
            portable $(::<$param>)? ($($arg),*)
        }
    };
}
pub(crate) use dispatch;
