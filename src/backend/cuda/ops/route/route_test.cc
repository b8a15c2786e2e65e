// The routing of several rows against a stable sort: choices, weights, and the lists that experts
// read, for shapes between the least and the most, with ties, padding and numbers that are none.
#include "backend/cuda/ops/route/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/selection.h"

namespace nibble::cuda {
namespace {

struct RouteCase {
  int rows, experts, top_k;
  bool renormalize = true;
  enum class Logits : uint8_t { normal, tied, equal, some_nan } logits = Logits::normal;
  int padding_every = 0;  // 0: no row is padding
};

std::vector<float> logits_of(const RouteCase& c, std::mt19937& engine) {
  std::normal_distribution<float> normal;
  std::vector<float> all(static_cast<size_t>(c.rows) * static_cast<size_t>(c.experts));
  for (float& x : all) {
    x = normal(engine);
    if (c.logits == RouteCase::Logits::tied) x = std::round(x);
    if (c.logits == RouteCase::Logits::equal) x = -1.5F;
    if (c.logits == RouteCase::Logits::some_nan && engine() % 100 == 0) x = NAN;
  }
  return all;
}

/// A row's experts in order of choice: larger logits first, NaN before all, ties by id.
std::vector<int> chosen_of(std::span<const float> logits, int top_k) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return std::isnan(x) ? !std::isnan(y) : x > y;
  });
  order.resize(static_cast<size_t>(top_k));
  return order;
}

class CudaRoute : public testing::TestWithParam<RouteCase> {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
    device_ = DeviceContext::open({}).value();
  }

  template <typename T>
  DeviceBuffer upload(const std::vector<T>& from) {
    const auto bytes = static_cast<int64_t>(from.size() * sizeof(T));
    DeviceBuffer to = DeviceBuffer::allocate(*device_, bytes, "test").value();
    copy_to_device(to.as<void>(), from.data(), bytes);
    return to;
  }
  /// -1 or NaN where nothing is written.
  DeviceBuffer untouched(int64_t words) {
    return upload(std::vector<int32_t>(static_cast<size_t>(words), -1));
  }
  template <typename T>
  std::vector<T> download(const DeviceBuffer& from) {
    std::vector<T> to(static_cast<size_t>(from.bytes()) / sizeof(T));
    CUDA_CHECK(cudaMemcpy(to.data(), from.as<void>(), to.size() * sizeof(T), cudaMemcpyDefault));
    return to;
  }

  /// Routes the case and checks all that kernels of experts read.
  void check(const RouteCase& c, Architecture::Kernels kernels) {
    std::mt19937 engine(static_cast<uint32_t>(c.rows * 1000 + c.experts + c.top_k));
    const std::vector<float> logits = logits_of(c, engine);
    std::vector<int32_t> kv_index(static_cast<size_t>(c.rows), 3);
    for (size_t row = 0; c.padding_every > 0 && row < kv_index.size(); row += c.padding_every)
      kv_index[row] = -1;
    const int64_t places = int64_t{c.rows} * c.top_k;
    const DeviceBuffer logits_there = upload(logits), kv_there = upload(kv_index);
    const DeviceBuffer experts = untouched(places), weights = untouched(places),
                       active = untouched(c.experts), begin = untouched(c.experts + 1),
                       assignments = untouched(places), active_count = untouched(1),
                       item_count = untouched(1), items = untouched(4 * places),
                       active_sum = upload(std::vector<int32_t>{100});
    route({.logits = logits_there.as<float>(),
           .stride = c.experts,
           .kv_index = kv_there.as<int32_t>(),
           .rows = c.rows,
           .experts = c.experts,
           .top_k = c.top_k,
           .renormalize = c.renormalize,
           .routing = {.experts = experts.as<int32_t>(),
                       .weights = weights.as<float>(),
                       .active = active.as<int32_t>(),
                       .begin = begin.as<int32_t>(),
                       .assignments = assignments.as<int32_t>(),
                       .active_count = active_count.as<int32_t>(),
                       .active_sum = active_sum.as<int32_t>(),
                       .items = items.as<int4>(),
                       .item_count = item_count.as<int32_t>()}},
          launcher_of(*device_, {.portable_kernels = kernels == Architecture::Kernels::portable}));
    CUDA_CHECK(cudaDeviceSynchronize());
    const auto found = download<int32_t>(experts);
    const auto found_weights = download<float>(weights);
    std::map<int, std::set<int>> rows_of;  // expert -> assignments
    for (int row = 0; row < c.rows; ++row) {
      const auto of_row =
          std::span(logits).subspan(static_cast<size_t>(row) * c.experts, c.experts);
      const std::vector<int> chosen = chosen_of(of_row, c.top_k);
      const double highest = of_row[static_cast<size_t>(chosen[0])];
      double total = 0.0;
      for (int e = 0; e < c.experts; ++e)
        if (!c.renormalize || std::ranges::find(chosen, e) != chosen.end())
          total += std::exp(double{of_row[static_cast<size_t>(e)]} - highest);
      for (int rank = 0; rank < c.top_k; ++rank) {
        const auto at = static_cast<size_t>(row * c.top_k + rank);
        const int expert = chosen[static_cast<size_t>(rank)];
        ASSERT_EQ(found[at], expert) << "row " << row << ", rank " << rank;
        const double weight =
            std::exp(double{of_row[static_cast<size_t>(expert)]} - highest) / total;
        if (std::isnan(weight)) {
          ASSERT_TRUE(std::isnan(found_weights[at])) << "row " << row;
        } else {
          ASSERT_NEAR(found_weights[at], weight, 2e-6) << "row " << row << ", rank " << rank;
        }
        if (kv_index[static_cast<size_t>(row)] >= 0) rows_of[expert].insert(static_cast<int>(at));
      }
    }
    check_lists(rows_of, download<int32_t>(active), download<int32_t>(begin),
                download<int32_t>(assignments), download<int4>(items));
    EXPECT_EQ(download<int32_t>(active_count)[0], static_cast<int>(rows_of.size()));
    EXPECT_EQ(download<int32_t>(active_sum)[0], 100 + static_cast<int>(rows_of.size()));
    size_t items_wanted = 0;
    for (const auto& [expert, of] : rows_of) items_wanted += (of.size() + 7) / 8;
    EXPECT_EQ(download<int32_t>(item_count)[0], static_cast<int>(items_wanted));
  }
  static void check_lists(const std::map<int, std::set<int>>& rows_of,
                          const std::vector<int32_t>& active, const std::vector<int32_t>& begin,
                          const std::vector<int32_t>& assignments, const std::vector<int4>& items) {
    size_t place = 0;
    size_t item = 0;
    size_t first = 0;
    for (const auto& [expert, wanted] : rows_of) {
      ASSERT_EQ(active[place], expert);
      ASSERT_EQ(begin[place], static_cast<int>(first));
      const auto of = std::span(assignments).subspan(first, wanted.size());
      ASSERT_EQ(std::set<int>(of.begin(), of.end()), wanted) << "expert " << expert;
      for (size_t done = 0; done < wanted.size(); done += 8, ++item) {
        ASSERT_EQ(items[item].x, expert);
        ASSERT_EQ(items[item].y, static_cast<int>(first + done));
        ASSERT_EQ(items[item].z, static_cast<int>(std::min<size_t>(8, wanted.size() - done)));
      }
      first += wanted.size();
      ++place;
    }
    EXPECT_EQ(begin[place], static_cast<int>(first));
  }

  std::unique_ptr<DeviceContext> device_;
};

TEST_P(CudaRoute, IsAStableSort) {
  check(GetParam(), Architecture::Kernels::portable);
  check(GetParam(), Architecture::Kernels::native);
}

using enum RouteCase::Logits;
INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaRoute,
    testing::Values(RouteCase{1, 8, 2}, RouteCase{1, 256, 8, true, normal, 1}, RouteCase{2, 256, 8},
                    RouteCase{3, 60, 4, false}, RouteCase{5, 4, 4}, RouteCase{7, 33, 1, true, tied},
                    RouteCase{8, 256, 8, false, tied, 3}, RouteCase{12, 512, 10, true, normal, 2},
                    RouteCase{31, 300, 32, false, tied}, RouteCase{32, 256, 8, true, equal},
                    RouteCase{33, 257, 3, true, some_nan, 5},
                    RouteCase{64, 256, 8, true, normal, 7}, RouteCase{64, 512, 32, true, equal},
                    RouteCase{64, 512, 32, false, some_nan}, RouteCase{256, 256, 8, true, normal, 3},
                    RouteCase{200, 512, 32, true, equal}));

}  // namespace
}  // namespace nibble::cuda
