"""Every name of the classic dialect at tag v2.26.0: the documented ones, and the modules' others.

Source of the others, which no summary lists: the modules ``api/nki``, ``api/nki/language``,
``api/nki/isa`` and ``api/nki/compiler`` under ``general/nki`` of the public repository
aws-neuron/aws-neuron-sdk; ``nki.typing`` as their examples use it.
"""

from difftest.tools.api.documented import CLASSIC, documented_names

_OTHERS = {
    "nki": """
        FrameworkKernel
    """,
    "nki.language": """
        bfp16 finfo gemm_grid gemm_stationary_grid static_cast
    """,
    "nki.isa": """
        builtin_custom_op dma_engine fp32 gpsimd_engine oob_mode scalar_engine
        tensor_engine unknown_engine vector_engine
    """,
    "nki.compiler": """
        allocation_scope enable_stack_allocator force_auto_alloc multi_buffer no_reorder
        psum sbuf skip_middle_end_transformations
    """,
    "nki.typing": """
        mutable_tensor scalar tensor
    """,
}

DOCUMENTED = {
    module: [
        *(one.name for one in documented_names(CLASSIC) if one.module == module),
        *names.split(),
    ]
    for module, names in _OTHERS.items()
}
