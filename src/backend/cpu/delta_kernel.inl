// The gated delta rule, token by token (model.md 2.4.5), vectorized over the value dimension:
//   S <- alpha S;  u = beta (v - S^T k);  S <- S + k u^T;  o = S^T q
// Both reductions run over the key dimension in order. The bound: 4 k_dim v_dim / 16 arithmetic
// instructions a token, and the state through L1 once.

namespace nibble::cpu {
namespace {

/// States up to this many keys are updated in a block of their own: rows of a state are so far
/// apart that 64 columns of them would not fit the first cache.
constexpr int kRoomKeys = 128;

/// P vectors of the columns of a state.
struct StateColumns {
  float* first;
  int64_t stride;
  float* row(int key) const { return first + key * stride; }
};

/// The rows of one head as the columns of its state see them. What a row predicts is summed while
/// the row before it is applied, so that the state is read and written once a row.
template <int P>
struct DeltaColumns {
  const DeltaHead& h;
  StateColumns state;  // in memory
  StateColumns room;   // times the alpha of the next row, until the last; may be `state`
  int column;
  int lanes;  // of the last vector

  int lanes_of(int p) const { return p + 1 < P ? 16 : lanes; }
  Vec alpha(int row) const { return broadcast(h.alpha[row * h.gate_stride]); }

  /// The state times the first alpha, and what the first row predicts.
  void enter(Vec (&first)[P]) const {
    const Vec first_alpha = alpha(0);
    Vec predicted[P];
    for (int p = 0; p < P; ++p) predicted[p] = zero();
    for (int i = 0; i < h.k_dim; ++i) {
      const Vec ki = broadcast(h.k[i]);
      for (int p = 0; p < P; ++p) {
        const Vec s = mul(first_alpha, load_n(state.row(i) + 16 * p, lanes_of(p)));
        store_n(room.row(i) + 16 * p, s, lanes_of(p));
        predicted[p] = fma(ki, s, predicted[p]);
      }
    }
    for (int p = 0; p < P; ++p) first[p] = predicted[p];
  }
  /// Applies a row, whose prediction is given, and leaves the prediction of the next one in its
  /// place. The last row leaves the state in memory.
  template <bool kLast>
  void apply(int row, Vec (&predicted)[P]) const {
    const float* q = h.q + row * h.qkv_stride;
    const float* k = h.k + row * h.qkv_stride;
    const float* v = h.v + row * h.qkv_stride + column;
    const Vec beta = broadcast(h.beta[row * h.gate_stride]);
    Vec update[P];
    Vec out[P];
    Vec next[P];
    for (int p = 0; p < P; ++p) {
      update[p] = mul(beta, sub(load_n(v + 16 * p, lanes_of(p)), predicted[p]));
      out[p] = next[p] = zero();
    }
    const float* next_k = kLast ? k : k + h.qkv_stride;
    const Vec next_alpha = kLast ? zero() : alpha(row + 1);
    for (int i = 0; i < h.k_dim; ++i) {
      const Vec ki = broadcast(k[i]);
      const Vec qi = broadcast(q[i]);
      const Vec next_ki = broadcast(next_k[i]);
      for (int p = 0; p < P; ++p) {
        Vec s = fma(ki, update[p], load_n(room.row(i) + 16 * p, lanes_of(p)));
        out[p] = fma(qi, s, out[p]);
        if constexpr (!kLast) {
          s = mul(next_alpha, s);
          next[p] = fma(next_ki, s, next[p]);
        }
        store_n((kLast ? state : room).row(i) + 16 * p, s, lanes_of(p));
      }
    }
    for (int p = 0; p < P; ++p) {
      store_n(h.out + row * h.out_stride + column + 16 * p, out[p], lanes_of(p));
      predicted[p] = next[p];
    }
  }
};

/// P vectors of value columns from `column` on; `lanes` of the last one exist.
template <int P>
void delta_columns(const DeltaHead& h, int column, int lanes) {
  alignas(64) float block[kRoomKeys * 16 * P];
  const StateColumns state = {h.state + column, h.v_dim};
  const StateColumns room = h.k_dim <= kRoomKeys ? StateColumns{block, 16 * P} : state;
  const DeltaColumns<P> columns = {h, state, room, column, lanes};
  Vec predicted[P];
  columns.enter(predicted);
  for (int row = 0; row + 1 < h.rows; ++row) columns.template apply<false>(row, predicted);
  columns.template apply<true>(h.rows - 1, predicted);
}

void delta_rule(const DeltaHead& head) {
  int column = 0;
  for (; column + 64 <= head.v_dim; column += 64) delta_columns<4>(head, column, 16);
  for (; column + 32 <= head.v_dim; column += 32) delta_columns<2>(head, column, 16);
  for (; column < head.v_dim; column += 16) {
    const int left = head.v_dim - column;
    delta_columns<1>(head, column, left < 16 ? left : 16);
  }
}

}  // namespace
}  // namespace nibble::cpu
