// Which tensors a conversion writes into which files.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "quantize/convert/convert.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

/// A tensor of an earlier file does not come behind those of later ones: whoever reads the layers
/// one by one needs one file after the other.
TEST(ConvertFiles, TensorsStayInTheOrderOfTheirFiles) {
  const test::Folder folder;
  test::write_model(folder / "in", test::Layout::dense);
  constexpr int64_t kShard = 16 << 10;
  ASSERT_TRUE(test::run(folder / "in", folder / "q",
                        {.dialect = Dialect::modelopt, .options = {.shard_bytes_max = kShard}})
                  .ok());
  const Checkpoint before = Checkpoint::open(folder / "q").value();
  convert(before, Dialect::compressed_tensors, folder / "out", {.shard_bytes_max = kShard}).value();
  const Checkpoint after = Checkpoint::open(folder / "out").value();
  const size_t files = before.files().size();
  ASSERT_GT(files, 4U);
  std::vector<int32_t> first(files, std::numeric_limits<int32_t>::max()), last(files, -1);
  for (const TensorEntry& entry : before.entries())
    if (const TensorEntry* same = after.find(entry.name)) {
      const auto from = static_cast<size_t>(entry.file);
      first[from] = std::min<int32_t>(first[from], same->file);
      last[from] = std::max<int32_t>(last[from], same->file);
    }
  for (size_t i = 1; i < files; ++i) EXPECT_LE(last[i - 1], first[i]) << before.files()[i];
}

}  // namespace
}  // namespace nibble
