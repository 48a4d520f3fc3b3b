/* tensors.h - the four tensors by number: loops over them, and arrays with an element for each. */
#ifndef FL_TENSORS_H
#define FL_TENSORS_H

enum { MAX_D_HEAD = 576, MAX_D_HEAD_V = 512 }; /* elements of a row of Q and K, and of V and O; multiples of 16 */
enum tensor { TENSOR_Q, TENSOR_K, TENSOR_V, N_INPUTS, TENSOR_O = N_INPUTS, N_TENSORS };

#endif
