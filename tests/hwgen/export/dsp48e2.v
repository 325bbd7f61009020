// A DSP of UltraScale+ by yosys' model of the 7 series' one, as far as the two do the same; from where they do not on, its
// results are wrong.
module DSP48E2 #(
  parameter integer AREG = 1, BREG = 1, CREG = 1, DREG = 1, ADREG = 1, MREG = 1, PREG = 1, ACASCREG = 1, BCASCREG = 1,
  parameter integer ALUMODEREG = 1, CARRYINREG = 1, CARRYINSELREG = 1, INMODEREG = 1, OPMODEREG = 1,
  parameter A_INPUT = "DIRECT", B_INPUT = "DIRECT", USE_MULT = "MULTIPLY", USE_SIMD = "ONE48",
  parameter AMULTSEL = "A"
) (
  input [29:0] A, ACIN,
  input [17:0] B, BCIN,
  input [26:0] D,
  input [47:0] C, PCIN,
  input [8:0] OPMODE,
  input [4:0] INMODE,
  input [3:0] ALUMODE,
  input [2:0] CARRYINSEL,
  input CARRYIN, CLK, CEA1, CEA2, CEB1, CEB2, CEC, CED, CEAD, CEM, CEP, RSTA, RSTB, RSTC, RSTD, RSTM, RSTP,
  output [29:0] ACOUT,
  output [17:0] BCOUT,
  output [47:0] P, PCOUT
);
  // factors and sums of 27 bits are multiplied here, of 25 there
  wire [29:0] factor = A_INPUT == "DIRECT" ? A : ACIN;
  wire short = AMULTSEL == "AD" ? (&factor[26:23] | ~|factor[26:23]) & (&D[26:23] | ~|D[26:23])
                                : &factor[26:24] | ~|factor[26:24];
  reg differs = 0;
  always @(posedge CLK) differs <= differs | !short | |OPMODE[8:7];
  wire [47:0] result;
  assign P = {48{differs}} ^ result;
  assign PCOUT = P;
  DSP48E1 #(
    .AREG(AREG), .BREG(BREG), .CREG(CREG), .DREG(DREG), .ADREG(ADREG), .MREG(MREG), .PREG(PREG),
    .ACASCREG(ACASCREG), .BCASCREG(BCASCREG), .ALUMODEREG(ALUMODEREG), .CARRYINREG(CARRYINREG),
    .CARRYINSELREG(CARRYINSELREG), .INMODEREG(INMODEREG), .OPMODEREG(OPMODEREG),
    .A_INPUT(A_INPUT), .B_INPUT(B_INPUT), .USE_MULT(USE_MULT), .USE_SIMD(USE_SIMD), .USE_DPORT(AMULTSEL == "AD" ? "TRUE" : "FALSE")
  ) dsp (
    .A(A), .B(B), .C(C), .D(D[24:0]), .P(result), .ACIN(ACIN), .BCIN(BCIN), .PCIN(PCIN),
    .ACOUT(ACOUT), .BCOUT(BCOUT), .INMODE(INMODE), .ALUMODE(ALUMODE), .OPMODE(OPMODE[6:0]),
    .CARRYIN(CARRYIN), .CARRYINSEL(CARRYINSEL), .CLK(CLK),
    .CEA1(CEA1), .CEA2(CEA2), .CEB1(CEB1), .CEB2(CEB2), .CEC(CEC), .CED(CED), .CEAD(CEAD), .CEM(CEM), .CEP(CEP),
    .CEALUMODE(1'b0), .CECARRYIN(1'b0), .CECTRL(1'b0), .CEINMODE(1'b0),
    .RSTA(RSTA), .RSTB(RSTB), .RSTC(RSTC), .RSTD(RSTD), .RSTM(RSTM), .RSTP(RSTP),
    .RSTALLCARRYIN(1'b0), .RSTALUMODE(1'b0), .RSTCTRL(1'b0), .RSTINMODE(1'b0),
    .CARRYCASCIN(1'b0), .MULTSIGNIN(1'b0)
  );
endmodule
