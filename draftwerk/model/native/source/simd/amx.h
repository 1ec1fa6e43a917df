// Integer products of many rows by AMX, where the processor has it and a build has VNNI beside it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amx {

constexpr int ROWS = 32;                // two tiles of activations
constexpr int WORD_BYTES = 64;          // of sixteen columns, four inputs each

// Whether this processor has it and the system lets this process use it.
bool available();

// This thread's tiles while it stands: of `rows` rows, and weights of eight words of four inputs.
class Tiles {
  public:
    explicit Tiles(int rows);
    ~Tiles();
    Tiles(const Tiles &) = delete;
    Tiles &operator=(const Tiles &) = delete;
    // sums[ROWS][16] of each of `count` groups of 32 bytes: signed bytes of rows, groups `step`
    // bytes apart, times words of weights, which follow each other.
    void multiply(const int8_t *rows, size_t stride, size_t step, const uint8_t *weights, int count,
                  int32_t *sums) const;

  private:
    int rows_;
};

// Makes so many rounds of four products of whole tiles; and a round's multiply-adds, 0 without AMX.
void multiply_again(long rounds);
long round_size();

}  // namespace amx
