// Products of two short factors, as a tree of additions; for `techmap`. Products of so few bits are made of LUTs: an
// ECP5 has fewer multipliers than a machine has uses for them.
(* techmap_celltype = "$mul" *)
module small_product (A, B, Y);
  parameter A_SIGNED = 0, B_SIGNED = 0, A_WIDTH = 1, B_WIDTH = 1, Y_WIDTH = 1;
  input [A_WIDTH - 1:0] A;
  input [B_WIDTH - 1:0] B;
  output [Y_WIDTH - 1:0] Y;
  wire _TECHMAP_FAIL_ = A_SIGNED || B_SIGNED || A_WIDTH > 8 || B_WIDTH > 8;
  wire [15:0] a = A;
  wire [7:0] b = B;
  wire [15:0] row0 = (b[0] ? a : 16'd0) + (b[1] ? a << 1 : 16'd0);
  wire [15:0] row1 = (b[2] ? a << 2 : 16'd0) + (b[3] ? a << 3 : 16'd0);
  wire [15:0] row2 = (b[4] ? a << 4 : 16'd0) + (b[5] ? a << 5 : 16'd0);
  wire [15:0] row3 = (b[6] ? a << 6 : 16'd0) + (b[7] ? a << 7 : 16'd0);
  wire [15:0] sum = (row0 + row1) + (row2 + row3);
  assign Y = sum;
endmodule
