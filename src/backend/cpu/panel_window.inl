// The loops read panels of 16 interleaved rows. Where weights lie as their file stores them, row by
// row, 128 bytes of each row are interleaved at a time, to a buffer that stays in L1.

namespace nibble::cpu {
namespace {

/// Columns of P panels from `panel` on. kColumnBytes: of one column in a panel.
template <int kColumnBytes, int P>
class PanelWindow {
 public:
  static constexpr int kStoredColumns = kStoredRowBytes * kPanelRows / kColumnBytes;

  PanelWindow(const LinearPanels& a, int64_t panel) : a_(a), panel_(panel) {}

  /// The columns of one window, and where the window around column k begins.
  int64_t columns() const { return a_.stored ? kStoredColumns : a_.k_padded; }
  int64_t begin_of(int64_t k) const { return a_.stored ? k / kStoredColumns * kStoredColumns : 0; }
  /// Values and scales are those of columns from k on. Stored ones: k is where a window begins.
  void open(int64_t k) {
    scales_ = a_.scales + panel_ * a_.scale_bytes;
    if (a_.scale_bytes > 0) scales_ += kColumnBytes == 8 ? k : k / 128 * 4;
    scale_stride_ = a_.scale_bytes;
    values_ = a_.panels + panel_ * a_.panel_bytes + k * kColumnBytes;
    value_stride_ = a_.panel_bytes;
    if (a_.stored) interleave(k);
  }
  const std::byte* values(int p) const { return values_ + p * value_stride_; }
  const std::byte* scales(int p) const { return scales_ + p * scale_stride_; }
  int64_t value_stride() const { return value_stride_; }

 private:
  void interleave(int64_t k) {
    for (int p = 0; p < P; ++p) {
      const std::byte* from =
          a_.panels + (panel_ + p) * a_.panel_bytes + k * kColumnBytes / kPanelRows;
      for (int at = 0; at < kStoredRowBytes; at += 64)
        interleave_line(from + at, a_.panel_bytes / kPanelRows, value_buffer_[p] + at * kPanelRows);
    }
    values_ = value_buffer_[0];
    value_stride_ = sizeof value_buffer_[0];
    if constexpr (kColumnBytes != 8) return;
    for (int p = 0; p < P; ++p)
      interleave_scales(a_.scales + (panel_ + p) * a_.scale_bytes + k / 16,
                        a_.scale_bytes / kPanelRows, scale_buffer_[p]);
    scales_ = scale_buffer_[0];
    scale_stride_ = sizeof scale_buffer_[0];
  }

  const LinearPanels& a_;
  int64_t panel_;
  const std::byte* values_ = nullptr;
  const std::byte* scales_ = nullptr;
  int64_t value_stride_ = 0;
  int64_t scale_stride_ = 0;
  alignas(64) std::byte value_buffer_[P][kStoredRowBytes * kPanelRows];
  alignas(64) std::byte scale_buffer_[P][kColumnBytes == 8 ? kStoredColumns : 1];
};

}  // namespace
}  // namespace nibble::cpu
