// Weights are fetched before they are decoded, and lines of results before they are written, as
// multiplying leaves time for it.

namespace nibble::cpu {
namespace {

/// While a tile of panels is multiplied, the next one is fetched: streams of 16 rows are too short
/// for the processor to see that they go on. It goes to the first cache, which leaves to the second
/// what it cannot keep: asked for in the second alone it comes later (bench/cpu/README.md).
inline void fetch_ahead(const std::byte* p) { __builtin_prefetch(p, 0, 3); }

/// Results are far apart in memory: their lines are fetched while they are computed.
inline void fetch_to_write(const float* y) { __builtin_prefetch(y, 1, 3); }

/// The bytes of the panels after those that are multiplied: they are fetched in the meantime, else
/// decoding waits for memory. They come in the order of memory and a few at each step; many at once
/// would hold up the products.
class NextPanels {
 public:
  /// `count` panels from `panel` on, or those of the next weight. `steps`: how often fetch() will
  /// be called.
  NextPanels(const LinearPanels& a, int64_t panel, int64_t count, int64_t steps)
      : values_(a.panels_after), scales_(a.scales_after) {
    if (panel * kPanelRows < a.rows) {
      values_ = a.panels + panel * a.panel_bytes;
      scales_ = a.scales + panel * a.scale_bytes;
    }
    if (values_ == nullptr) return;
    values_left_ = count * a.panel_bytes / 64;
    scales_left_ = count * a.scale_bytes / 64;
    lines_ = (values_left_ + scales_left_ + steps - 1) / steps;
  }
  void fetch() {
    for (int64_t i = 0; i < lines_; ++i) {
      if (values_left_ > 0) {
        fetch_line(values_, values_left_);
      } else if (scales_left_ > 0) {
        fetch_line(scales_, scales_left_);
      }
    }
  }

 private:
  static void fetch_line(const std::byte*& line, int64_t& left) {
    fetch_ahead(line);
    line += 64;
    --left;
  }

  const std::byte* values_;
  const std::byte* scales_;
  int64_t values_left_ = 0;  // lines of 64 bytes
  int64_t scales_left_ = 0;
  int64_t lines_ = 0;  // of one step
};

}  // namespace
}  // namespace nibble::cpu
