// The gated delta rule, token by token (model.md 2.4.5), vectorized over the value dimension:
//   S <- alpha S;  u = beta (v - S^T k);  S <- S + k u^T;  o = S^T q
// Both reductions run over the key dimension in order. The bound: 4 k_dim v_dim / 16 arithmetic
// instructions a token, and the state through L1 twice.

namespace nibble::cpu {
namespace {

/// P vectors of value columns from `column` on; `lanes` of the last one exist.
template <int P>
void delta_columns(const DeltaHead& h, int column, int lanes) {
  const auto lanes_of = [&](int p) { return p + 1 < P ? 16 : lanes; };
  for (int row = 0; row < h.rows; ++row) {
    const float* q = h.q + row * h.qkv_stride;
    const float* k = h.k + row * h.qkv_stride;
    const float* v = h.v + row * h.qkv_stride + column;
    const Vec alpha = broadcast(h.alpha[row * h.gate_stride]);
    const Vec beta = broadcast(h.beta[row * h.gate_stride]);
    Vec predicted[P];
    for (int p = 0; p < P; ++p) predicted[p] = zero();
    for (int i = 0; i < h.k_dim; ++i) {
      const float* state = h.state + int64_t{i} * h.v_dim + column;
      const Vec ki = broadcast(k[i]);
      for (int p = 0; p < P; ++p) {
        const Vec s = mul(alpha, load_n(state + 16 * p, lanes_of(p)));
        predicted[p] = fma(ki, s, predicted[p]);
      }
    }
    Vec update[P];
    Vec out[P];
    for (int p = 0; p < P; ++p) {
      update[p] = mul(beta, sub(load_n(v + 16 * p, lanes_of(p)), predicted[p]));
      out[p] = zero();
    }
    for (int i = 0; i < h.k_dim; ++i) {
      float* state = h.state + int64_t{i} * h.v_dim + column;
      const Vec ki = broadcast(k[i]);
      const Vec qi = broadcast(q[i]);
      for (int p = 0; p < P; ++p) {
        const Vec s = fma(ki, update[p], mul(alpha, load_n(state + 16 * p, lanes_of(p))));
        store_n(state + 16 * p, s, lanes_of(p));
        out[p] = fma(qi, s, out[p]);
      }
    }
    for (int p = 0; p < P; ++p)
      store_n(h.out + row * h.out_stride + column + 16 * p, out[p], lanes_of(p));
  }
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
