#include "kernels/embed/embed.h"

#include <algorithm>

#include "base/check.h"

namespace baton::kernels {

void Embed(const EmbedArgs& args, KernelContext& context) {
  constexpr uint32_t kTileRows = 16;
  const uint64_t hidden = args.table->columns;
  context.ForEachTile((args.rows + kTileRows - 1) / kTileRows, [&](uint32_t tile, uint32_t) {
    const uint32_t end = std::min(args.rows, (tile + 1) * kTileRows);
    for (uint32_t row = tile * kTileRows; row < end; ++row) {
      DequantizeRow(*args.table, args.tokens[row], {args.out + row * hidden, hidden});
    }
  });
}

}  // namespace baton::kernels
