// A program for tests that is a structure worker and nothing else. Not part of the product.
#include "grammar/structure_worker.h"

int main() { return nibble::run_structure_worker(); }
