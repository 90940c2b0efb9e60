"""The way to `kernels.classic.conv2d`: eight slower kernels for its layer, one technique apart.

Each takes the arguments of `fused_conv2d_maxpool` and gives the same results, on whatever fits
SBUF the way that it uses it. `docs/explanation/ladder.md` shows them side by side.
"""

from kernels.classic.conv2d import fused_conv2d_maxpool
from kernels.classic.conv2d_ladder.baseline import conv2d_baseline
from kernels.classic.conv2d_ladder.broadcast_bias import conv2d_broadcast_bias
from kernels.classic.conv2d_ladder.cached_weights import conv2d_cached_weights
from kernels.classic.conv2d_ladder.flat_weights import conv2d_flat_weights
from kernels.classic.conv2d_ladder.halo_tiles import conv2d_halo_tiles
from kernels.classic.conv2d_ladder.row_tiles import conv2d_row_tiles
from kernels.classic.conv2d_ladder.whole_plane import conv2d_whole_plane
from kernels.classic.conv2d_ladder.without_copies import conv2d_without_copies

LADDER = (
    conv2d_whole_plane,
    conv2d_baseline,
    conv2d_halo_tiles,
    conv2d_cached_weights,
    conv2d_flat_weights,
    conv2d_without_copies,
    conv2d_broadcast_bias,
    conv2d_row_tiles,
    fused_conv2d_maxpool,
)
"""From the slowest to the production kernel."""
