// Row kernels: norms, gates, convolution, softmax. Included by kernels_*.cc after simd_*.h and
// kernels.h; the same source for every instruction set.

namespace nibble::cpu {
namespace {

/// exp(x) to about 1 ulp; 0 below -87, saturated at 2^127.5 above, NaN stays NaN. Range reduction
/// x = n ln 2 + r with |r| <= ln(2)/2, then the Taylor series to r^7 (error 5e-9).
inline Vec exp_of(Vec x) {
  const Vec clamped = min(broadcast(88.0F), max(broadcast(-87.0F), x));
  const Vec magic = broadcast(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec shifted = fma(clamped, broadcast(1.44269504088896341F), magic);
  const Vec n = sub(shifted, magic);
  Vec r = fma(n, broadcast(-0.693359375F), clamped);  // ln 2 in two parts, the first exact
  r = fma(n, broadcast(2.12194440e-4F), r);
  Vec p = broadcast(1.0F / 5040.0F);
  p = fma(p, r, broadcast(1.0F / 720.0F));
  p = fma(p, r, broadcast(1.0F / 120.0F));
  p = fma(p, r, broadcast(1.0F / 24.0F));
  p = fma(p, r, broadcast(1.0F / 6.0F));
  p = fma(p, r, broadcast(0.5F));
  p = fma(p, r, broadcast(1.0F));
  p = fma(p, r, broadcast(1.0F));
  // The low bits of `shifted` are n; 0x4B400000 is the pattern of `magic`.
  const Words exponent = shift_left<23>(add_words(as_words(shifted), 127U - 0x4B400000U));
  const Vec result = mul(p, as_floats(exponent));
  return select(less(x, broadcast(-87.0F)), zero(), result);
}

inline Vec sigmoid_of(Vec x) {
  return div(broadcast(1.0F), add(broadcast(1.0F), exp_of(sub(zero(), x))));
}

/// f(offset, lanes) over [0, n) in steps of 16.
template <typename F>
inline void for_lanes(int n, const F& f) {
  int i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, n - i);
}

/// Sum of squares in four interleaved chains, joined as (0+1) + (2+3).
inline float sum_of_squares(const float* x, int n) {
  Vec sum[4] = {zero(), zero(), zero(), zero()};
  for_lanes(n, [&](int i, int lanes) {
    const Vec v = load_n(x + i, lanes);
    Vec& s = sum[i / 16 % 4];
    s = fma(v, v, s);
  });
  return reduce_add(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

inline float norm_factor(const NormRow& row) {
  const float mean = sum_of_squares(row.x, row.n) / static_cast<float>(row.n);
  return 1.0F / __builtin_sqrtf(mean + row.eps);
}

void rms_norm(const NormRow& row) {
  const Vec factor = broadcast(norm_factor(row));
  for_lanes(row.n, [&](int i, int lanes) {
    const Vec scaled = mul(load_n(row.x + i, lanes), factor);
    store_n(row.y + i, mul(scaled, load_n(row.w + i, lanes)), lanes);
  });
}

/// Sum of f(lanes of x) in four interleaved chains, joined as (0+1) + (2+3).
template <typename F>
inline float sum_of(const float* x, int n, const F& f) {
  Vec sum[4] = {zero(), zero(), zero(), zero()};
  for_lanes(n, [&](int i, int lanes) {
    Vec& s = sum[i / 16 % 4];
    s = add(s, keep_first(f(load_n(x + i, lanes)), lanes, zero()));
  });
  return reduce_add(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

void layer_norm(const NormRow& row, const float* bias) {
  const auto n = static_cast<float>(row.n);
  const Vec mean = broadcast(sum_of(row.x, row.n, [](Vec v) { return v; }) / n);
  const float variance = sum_of(row.x, row.n, [&](Vec v) {
                           const Vec d = sub(v, mean);
                           return mul(d, d);
                         }) /
                         n;
  const Vec factor = broadcast(1.0F / __builtin_sqrtf(variance + row.eps));
  for_lanes(row.n, [&](int i, int lanes) {
    const Vec scaled = mul(sub(load_n(row.x + i, lanes), mean), factor);
    store_n(row.y + i, fma(scaled, load_n(row.w + i, lanes), load_n(bias + i, lanes)), lanes);
  });
}

void add_bias(float* y, const float* bias, int n) {
  for_lanes(n, [&](int i, int lanes) {
    store_n(y + i, add(load_n(y + i, lanes), load_n(bias + i, lanes)), lanes);
  });
}

/// 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
void gelu_tanh(float* y, const float* bias, int n) {
  for_lanes(n, [&](int i, int lanes) {
    const Vec x = add(load_n(y + i, lanes), load_n(bias + i, lanes));
    const Vec cube = mul(mul(x, x), mul(x, broadcast(0.044715F)));
    const Vec twice = mul(add(x, cube), broadcast(1.5957691216057308F));  // 2 sqrt(2 / pi)
    store_n(y + i, mul(x, sigmoid_of(twice)), lanes);
  });
}

/// x Phi(x) with Phi of the normal distribution by Abramowitz and Stegun 7.1.26, whose error is
/// 1.5e-7: for z = |x| / sqrt(2), erfc(z) = t P(t) exp(-z^2), t = 1 / (1 + 0.3275911 z).
inline Vec gelu_exact_of(Vec x) {
  const Vec z = mul(max(x, sub(zero(), x)), broadcast(0.70710678118654752F));
  const Vec t = div(broadcast(1.0F), fma(z, broadcast(0.3275911F), broadcast(1.0F)));
  Vec p = broadcast(1.061405429F);
  p = fma(p, t, broadcast(-1.453152027F));
  p = fma(p, t, broadcast(1.421413741F));
  p = fma(p, t, broadcast(-0.284496736F));
  p = fma(p, t, broadcast(0.254829592F));
  const Vec tail = mul(mul(mul(p, t), exp_of(sub(zero(), mul(z, z)))), broadcast(0.5F));
  const Vec phi = select(less(x, zero()), tail, sub(broadcast(1.0F), tail));
  return mul(x, phi);
}

void gelu_exact(float* y, const float* bias, int n) {
  for_lanes(n, [&](int i, int lanes) {
    const Vec x = add(load_n(y + i, lanes), load_n(bias + i, lanes));
    store_n(y + i, gelu_exact_of(x), lanes);
  });
}

void gated_norm(const NormRow& row, const float* z) {
  const Vec factor = broadcast(norm_factor(row));
  for_lanes(row.n, [&](int i, int lanes) {
    const Vec scaled = mul(load_n(row.x + i, lanes), factor);
    const Vec gate = load_n(z + i, lanes);
    const Vec normed = mul(scaled, load_n(row.w + i, lanes));
    store_n(row.y + i, mul(normed, mul(gate, sigmoid_of(gate))), lanes);
  });
}

void l2_norm(float* x, int n, float eps, float scale) {
  const Vec factor = broadcast(scale / __builtin_sqrtf(sum_of_squares(x, n) + eps));
  for_lanes(n, [&](int i, int lanes) { store_n(x + i, mul(load_n(x + i, lanes), factor), lanes); });
}

void swiglu(const float* gate, const float* up, float* y, int n) {
  for_lanes(n, [&](int i, int lanes) {
    const Vec g = load_n(gate + i, lanes);
    store_n(y + i, mul(mul(g, sigmoid_of(g)), load_n(up + i, lanes)), lanes);
  });
}

void sigmoid_gate(float* y, const float* gate, int n) {
  for_lanes(n, [&](int i, int lanes) {
    store_n(y + i, mul(load_n(y + i, lanes), sigmoid_of(load_n(gate + i, lanes))), lanes);
  });
}

void conv_silu(const float* const* x, const float* w, int taps, float* y, int n) {
  for_lanes(n, [&](int i, int lanes) {
    Vec sum = zero();
    for (int j = 0; j < taps; ++j)
      sum = fma(load_n(w + int64_t{j} * n + i, lanes), load_n(x[j] + i, lanes), sum);
    store_n(y + i, mul(sum, sigmoid_of(sum)), lanes);
  });
}

void add_weighted(float* y, const float* const* x, const float* weight, int count, int n) {
  for_lanes(n, [&](int i, int lanes) {
    Vec sum = zero();
    for (int j = 0; j < count; ++j) sum = fma(broadcast(weight[j]), load_n(x[j] + i, lanes), sum);
    store_n(y + i, add(load_n(y + i, lanes), sum), lanes);
  });
}

void softmax(const float* x, float* p, int n) {
  const Vec lowest = broadcast(-__builtin_inff());
  Vec top = lowest;
  for_lanes(n, [&](int i, int lanes) {
    top = max(top, keep_first(load_n(x + i, lanes), lanes, lowest));
  });
  const Vec shift = broadcast(reduce_max(top));
  Vec sum = zero();
  for_lanes(n, [&](int i, int lanes) {
    const Vec e = exp_of(sub(load_n(x + i, lanes), shift));
    sum = add(sum, keep_first(e, lanes, zero()));
    store_n(p + i, e, lanes);
  });
  const Vec total = broadcast(reduce_add(sum));
  for_lanes(n, [&](int i, int lanes) { store_n(p + i, div(load_n(p + i, lanes), total), lanes); });
}

}  // namespace
}  // namespace nibble::cpu
