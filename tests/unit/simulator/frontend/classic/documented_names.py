"""Every name that AWS documents for the classic dialect at tag v2.26.0.

Source: the modules ``api/nki``, ``api/nki/language``, ``api/nki/isa`` and ``api/nki/compiler``
under ``general/nki`` of the public repository aws-neuron/aws-neuron-sdk; ``nki.typing`` as their
examples use it.
"""

_NAMES = {
    "nki": """
        FrameworkKernel baremetal benchmark jit profile simulate_kernel tensor
    """,
    "nki.language": """
        abs add affine_range all all_reduce arange arctan atomic_rmw bfloat16 bfp16 bitwise_and
        bitwise_or bitwise_xor bool_ broadcast_to ceil copy cos device_print divide dropout ds
        empty_like equal erf erf_dx exp expand_dims finfo float16 float32 float8_e4m3
        float8_e5m2 floor fmod fp32 full gather_flattened gelu gelu_apprx_sigmoid
        gelu_apprx_tanh gelu_dx gemm_grid gemm_stationary_grid greater greater_equal hbm int16
        int32 int8 invert left_shift less less_equal load load_transpose2d log logical_and
        logical_not logical_or logical_xor loop_reduce matmul max maximum mean mgrid min minimum
        mish mod multiply nc ndarray negative not_equal num_programs ones par_dim power
        private_hbm prod program_id program_ndim psum rand random_seed reciprocal relu
        right_shift rms_norm rsqrt sbuf sequential_range shared_constant shared_hbm
        shared_identity_matrix sigmoid sign silu silu_dx sin softmax softplus spmd_dim sqrt
        square static_cast static_range store subtract sum tan tanh tfloat32 tile_size transpose
        trunc uint16 uint32 uint8 var where zeros zeros_like
    """,
    "nki.isa": """
        activation activation_reduce affine_select bn_aggr bn_stats builtin_custom_op dge_mode
        dma_copy dma_engine dma_transpose dropout engine fp32 get_nc_version gpsimd_engine iota
        local_gather max8 memset nc_find_index8 nc_match_replace8 nc_matmul nc_stream_shuffle
        nc_transpose nc_version oob_mode range_select reciprocal reduce_cmd scalar_engine
        scalar_tensor_tensor select_reduce sequence_bounds tensor_copy tensor_copy_dynamic_dst
        tensor_copy_dynamic_src tensor_copy_predicated tensor_engine tensor_partition_reduce
        tensor_reduce tensor_scalar tensor_scalar_reduce tensor_tensor tensor_tensor_scan
        unknown_engine vector_engine
    """,
    "nki.compiler": """
        allocation_scope enable_stack_allocator force_auto_alloc multi_buffer no_reorder psum
        sbuf skip_middle_end_transformations
    """,
    "nki.typing": """
        mutable_tensor scalar tensor
    """,
}

DOCUMENTED = {module: names.split() for module, names in _NAMES.items()}
