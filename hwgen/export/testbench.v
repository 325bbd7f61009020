// A board between a host's memory and a driver, both made of plain Verilog 2001: runs in Verilator and in Icarus.
//
// In: what a driver writes to load the machine (../images/load.hex) and to train (writes.hex), pages (pages.hex), rows
// of records at first (starts.hex; all others are 0), words that the board must then hold (expected.hex), what records
// must then be (records.hex) in which bits (held.hex; in all where it has no row), and what the last epoch must have
// taken (counters.hex); then steps (scenarios.hex) of what must be rejected, fail, stop and go on, with a page of their
// own (scenario_pages.hex). Out: a line that starts with PASS or FAIL. +STALL=n, 0 to 255: buses of memories pause in n
// of 256 cycles, at random, and counters are not compared. +LOAD=FILE: what loads the machine is there. +QUICK: without
// the longest scenarios, the last two. +TRACE=FILE: without any, but with waveforms of the training in VCD;
// dana_board.gtkw is a view of them. All outputs of the board are checked: what they carry here, and how they carry it
// by the modules at the end of this file.
`timescale 1ns / 1ps
@DEFINES@
`define MAX_ERRORS 10
`define WRONG(said) begin \
  testbench.errors = testbench.errors + 1; \
  if (testbench.errors <= `MAX_ERRORS) $display said; \
  if (testbench.errors == `MAX_ERRORS) testbench.give_up; \
end

module testbench;
  integer stall = 0, quick = 0, traced = 0;
  localparam DATA_BITS = @DATA_BITS@;    // of a beat of pages
  localparam BUSES = @BUSES@;            // over which it comes, a stripe over each
  localparam BUS_BITS = DATA_BITS / BUSES;
  localparam BEATS = @BEATS@;            // of all pages
  localparam MORE_BEATS = @MORE_BEATS@;  // of those of the scenarios, which follow
  localparam STEPS = @STEPS@;
  localparam SLOP = 64;                  // cycles that the driver takes to start, and to see the end
  localparam UNANSWERED = 10000;         // cycles in which every access to the control bus must be answered
@ACTS@
  localparam LOADS = @LOADS@;
  localparam WRITES = @WRITES@;
  localparam EXPECTED = @EXPECTED@;
  localparam [63:0] PATIENCE = 64'd@PATIENCE@;  // cycles to wait for the interrupt, where no bus pauses
  localparam COUNTERS = @COUNTERS@;
  localparam LATENCY = @LATENCY@;        // cycles from an address to its first beat
  localparam PAGE_BEATS = @PAGE_BEATS@;
  localparam PAGE_CYCLES = @PAGE_CYCLES@;  // from a page's first beat to its last, both included
  localparam QUEUE = @QUEUE@;            // bursts that a memory remembers
  localparam [63:0] BASE = 64'h@BASE@;
  localparam [63:0] PART = 64'h@PART@;   // bytes from where one bus finds its stripes to where the next does
  localparam ADDRESS_BITS = @ADDRESS_BITS@;  // of the control bus
  localparam [ADDRESS_BITS - 1:0] INTERRUPT_REGISTER = 'h@INTERRUPT@;
  localparam [ADDRESS_BITS - 1:0] CYCLES_REGISTER = 'h@CYCLES@;  // of the training

`ifdef RECORDS
  localparam ROW_BITS = @ROW_BITS@;
  localparam ROWS = @ROWS@;              // of all tables, what lies between records included
  localparam RECORD_LATENCY = @RECORD_LATENCY@;
  localparam [63:0] RECORD_BASE = 64'h@RECORD_BASE@;
`endif

  integer errors = 0;
  task give_up;
    begin
      $display("FAIL %0d errors, what follows is left out", errors);
      $finish;
    end
  endtask

  reg clk = 0, rst = 1;
  always #5 clk = ~clk;

  // what is written and read at the control bus: byte address in the upper half, word in the lower
  reg [63:0] loads [0:LOADS - 1];
  reg [63:0] writes [0:WRITES - 1];
  reg [63:0] expected [0:EXPECTED - 1];
  reg [63:0] counters [0:COUNTERS - 1];
  reg [71:0] steps [0:STEPS - 1];        // act, address, word
  reg [DATA_BITS - 1:0] pages [0:BEATS + MORE_BEATS - 1];

  reg [ADDRESS_BITS - 1:0] awaddr = 0, araddr = 0;
  reg awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
  reg [31:0] wdata = 0;
  reg [3:0] wstrb = 4'hf;
  wire awready, wready, bvalid, arready, rvalid;
  wire [1:0] bresp, rresp;
  wire [31:0] rdata;

  // of each bus
  wire [64 * BUSES - 1:0] page_address;
  wire [8 * BUSES - 1:0] page_length;
  wire [BUSES - 1:0] page_id, page_lock, page_asked, page_taken, page_ready, page_valid, page_last;
  wire [3 * BUSES - 1:0] page_size, page_prot;
  wire [2 * BUSES - 1:0] page_burst, page_response;
  wire [4 * BUSES - 1:0] page_cache;
  wire [DATA_BITS - 1:0] page_data;
  reg [BUSES - 1:0] silent = 0;          // accepts and answers nothing
  reg [1:0] bad_response = 0;
  integer bad_bus = 0;
  reg [31:0] bad_beat = 0;
  wire interrupt;

`ifdef RECORDS
  wire [63:0] get_address, put_address;
  wire [7:0] get_length, put_length;
  wire get_id, get_lock, put_id, put_lock;
  wire [2:0] get_size, get_prot, put_size, put_prot;
  wire [1:0] get_burst, put_burst;
  wire [3:0] get_cache, put_cache;
  wire get_asked, got_taken, put_asked, given_valid, given_last, answer_taken;
  wire [ROW_BITS - 1:0] given;
  wire [ROW_BITS / 8 - 1:0] given_bytes;
  reg get_ready = 0, got_valid = 0, got_last = 0, put_ready = 0, given_ready = 0, answer_valid = 0;
  reg [1:0] got_response = 0, answer_response = 0;
  reg [ROW_BITS - 1:0] got = 0;
  reg [ROW_BITS - 1:0] records [0:ROWS - 1];
  reg [ROW_BITS - 1:0] wanted [0:ROWS - 1];
  reg [ROW_BITS - 1:0] held [0:ROWS - 1];
`endif

  @TOP@ board (
    .clk(clk),
    .s_axil_awaddr(awaddr), .s_axil_awprot(3'b000), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
    .s_axil_wdata(wdata), .s_axil_wstrb(wstrb), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
    .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
    .s_axil_araddr(araddr), .s_axil_arprot(3'b000), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
    .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
@PAGE_PORTS@
`ifdef RECORDS
    .m_axi_records_arid(get_id), .m_axi_records_araddr(get_address), .m_axi_records_arlen(get_length),
    .m_axi_records_arsize(get_size), .m_axi_records_arburst(get_burst), .m_axi_records_arlock(get_lock),
    .m_axi_records_arcache(get_cache), .m_axi_records_arprot(get_prot), .m_axi_records_arvalid(get_asked),
    .m_axi_records_arready(get_ready),
    .m_axi_records_rid(1'b0), .m_axi_records_rdata(got), .m_axi_records_rresp(got_response),
    .m_axi_records_rlast(got_last), .m_axi_records_rvalid(got_valid), .m_axi_records_rready(got_taken),
    .m_axi_records_awid(put_id), .m_axi_records_awaddr(put_address), .m_axi_records_awlen(put_length),
    .m_axi_records_awsize(put_size), .m_axi_records_awburst(put_burst), .m_axi_records_awlock(put_lock),
    .m_axi_records_awcache(put_cache), .m_axi_records_awprot(put_prot), .m_axi_records_awvalid(put_asked),
    .m_axi_records_awready(put_ready),
    .m_axi_records_wdata(given), .m_axi_records_wstrb(given_bytes), .m_axi_records_wlast(given_last),
    .m_axi_records_wvalid(given_valid), .m_axi_records_wready(given_ready),
    .m_axi_records_bid(1'b0), .m_axi_records_bresp(answer_response), .m_axi_records_bvalid(answer_valid),
    .m_axi_records_bready(answer_taken),
`endif
    .rst(rst), .irq(interrupt)
  );

  // ---- rules of the buses
  channel #(.WIDTH(2)) s_axil_b (.clk(clk), .rst(rst), .valid(bvalid), .ready(bready), .payload(bresp));
  channel #(.WIDTH(34)) s_axil_r (.clk(clk), .rst(rst), .valid(rvalid), .ready(rready), .payload({rresp, rdata}));
`ifdef RECORDS
  requests #(.BYTES(ROW_BITS / 8)) m_axi_records_ar (
    .clk(clk), .rst(rst), .valid(get_asked), .ready(get_ready), .address(get_address), .length(get_length),
    .size(get_size), .burst(get_burst), .id(get_id), .lock(get_lock), .cache(get_cache), .prot(get_prot)
  );
  requests #(.BYTES(ROW_BITS / 8)) m_axi_records_aw (
    .clk(clk), .rst(rst), .valid(put_asked), .ready(put_ready), .address(put_address), .length(put_length),
    .size(put_size), .burst(put_burst), .id(put_id), .lock(put_lock), .cache(put_cache), .prot(put_prot)
  );
  channel #(.WIDTH(1 + ROW_BITS / 8 + ROW_BITS)) m_axi_records_w (
    .clk(clk), .rst(rst), .valid(given_valid), .ready(given_ready), .payload({given_last, given_bytes, given})
  );
`endif

  // The control bus has one write and one read under way, and answers what was asked.
  reg addressed = 0, given_word = 0, reading = 0;
  always @(posedge clk) begin
    if ((addressed & awready) | (given_word & wready) | (reading & arready))
      `WRONG(("the control bus takes an access before it has answered the one before"))
    if ((bvalid & ~(addressed & given_word)) | (rvalid & ~reading)) `WRONG(("the control bus answers no access"))
    addressed <= ~rst & ((awvalid & awready) | (addressed & ~(bvalid & bready)));
    given_word <= ~rst & ((wvalid & wready) | (given_word & ~(bvalid & bready)));
    reading <= ~rst & ((arvalid & arready) | (reading & ~(rvalid & rready)));
  end

  // A control bus that does not answer would leave the driver waiting for ever.
  integer unanswered = 0;
  always @(posedge clk) begin
    if ((bvalid & bready) | (rvalid & rready) | ~(awvalid | wvalid | bready | arvalid | rready)) unanswered = 0;
    else unanswered = unanswered + 1;
    if (unanswered == UNANSWERED) begin
      `WRONG(("the control bus has not answered for %0d cycles", unanswered))
      give_up;
    end
  end

  // ---- memories
  // They keep to the cycle contract (docs/machine.md of the project that made this, "Cycles"): bursts in their order, the
  // first beat LATENCY cycles after its address was taken, the others and other bursts right behind it. They act at
  // falling edges, as the driver does; what the rising edge takes is sampled at it.
  reg [63:0] now = 0;
  reg [63:0] noise = 64'h2545f4914f6cdd1d;
`define PAUSES(k) (noise[8 * k +: 8] < stall)

  function [63:0] drawn(input [63:0] from);  // xorshift64
    begin
      drawn = from ^ (from << 13);
      drawn = drawn ^ (drawn >> 7);
      drawn = drawn ^ (drawn << 17);
    end
  endfunction

  always @(posedge clk) begin
    now <= now + 1;
    noise <= drawn(noise);
  end

  // The memory of pages begins at `place`, of the next bus at `part` behind it, and has `holds` beats, which repeat those
  // of `pages` from `repeats` on.
  reg [63:0] place = BASE, part = PART, holds = BEATS + MORE_BEATS;
  integer repeats = 0;

  genvar number;
  generate
    for (number = 0; number < BUSES; number = number + 1) begin : pages_of
      wire [63:0] asked = page_address[64 * number +: 64] - place - part * number;
      wire [7:0] length = page_length[8 * number +: 8];
      reg [63:0] first [0:QUEUE - 1];        // of each burst: the cycle of its first beat, if none is before it
      reg [31:0] beat [0:QUEUE - 1];
      reg [8:0] left [0:QUEUE - 1];
      integer asks = 0, done = 0;            // bursts so far
      integer head;
      reg went = 0, waits = 0;
      reg [63:0] began = 0, within;
      reg ready = 0, valid = 0, last = 0;
      reg [1:0] response = 0;
      reg [BUS_BITS - 1:0] data = 0;
      reg [63:0] pauses = 64'h2545f4914f6cdd1d + number;

      assign page_ready[number] = ready;
      assign page_valid[number] = valid;
      assign page_last[number] = last;
      assign page_response[2 * number +: 2] = response;
      assign page_data[BUS_BITS * number +: BUS_BITS] = data;

      requests #(.BYTES(BUS_BITS / 8)) m_axi_ar (
        .clk(clk), .rst(rst), .valid(page_asked[number]), .ready(ready), .address(page_address[64 * number +: 64]),
        .length(length), .size(page_size[3 * number +: 3]), .burst(page_burst[2 * number +: 2]), .id(page_id[number]),
        .lock(page_lock[number]), .cache(page_cache[4 * number +: 4]), .prot(page_prot[3 * number +: 3])
      );

      always begin
        @(negedge clk);
        if (went || rst) valid = 0;
        if (rst) done = asks;
        ready = asks - done < QUEUE && !silent[number] && pauses[7:0] >= stall;
        head = done % QUEUE;
        if (!valid && asks != done && !silent[number] && now >= first[head]) begin
          within = beat[head] % PAGE_BEATS;
          if (within == 0 && !waits) began = now;
          waits = within == 0;
          // beat k of the n of a page comes when (k + 1) / n of the page's cycles are over
          if (now + 1 >= began + ((within + 1) * PAGE_CYCLES + PAGE_BEATS - 1) / PAGE_BEATS && pauses[15:8] >= stall) begin
            valid = 1;
            data = pages[repeats + beat[head] % (BEATS + MORE_BEATS - repeats)][BUS_BITS * number +: BUS_BITS];
            response = number == bad_bus && beat[head] >= bad_beat ? bad_response : 2'b00;
            last = left[head] == 9'd1;
          end
        end
        @(posedge clk);
        pauses = drawn(pauses);
        went = valid & page_taken[number];
        if (went) begin
          beat[head] = beat[head] + 1;
          left[head] = left[head] - 9'd1;
          if (left[head] == 0) done = done + 1;
        end
        if (page_asked[number] & ready) begin
          if (asked + (length + 64'd1) * (BUS_BITS / 8) > holds * (BUS_BITS / 8) || asked >= holds * (BUS_BITS / 8))
            `WRONG(("a burst at %h is outside the pages of bus %0d", page_address[64 * number +: 64], number))
          first[asks % QUEUE] = now + LATENCY;
          beat[asks % QUEUE] = asked / (BUS_BITS / 8);
          left[asks % QUEUE] = {1'b0, length} + 9'd1;
          asks = asks + 1;
        end
      end
    end
  endgenerate

`ifdef RECORDS
  reg [63:0] get_first [0:QUEUE - 1];
  reg [31:0] get_row [0:QUEUE - 1];
  reg [8:0] get_left [0:QUEUE - 1];
  integer gets = 0, get_done = 0, get_head;
  reg [31:0] put_row [0:QUEUE - 1];
  reg [8:0] put_left [0:QUEUE - 1];
  integer puts = 0, put_done = 0, put_head;
  reg [ROW_BITS - 1:0] row [0:QUEUE - 1];  // written, and not in the memory yet: their address may come behind them
  reg row_last [0:QUEUE - 1];
  integer rows = 0, row_done = 0;
  reg [63:0] answer_first [0:QUEUE - 1];
  integer answers = 0, answer_done = 0;
  reg got_went = 0, answer_went = 0;

  function outside(input [63:0] address, input [7:0] length);
    outside = address < RECORD_BASE || address - RECORD_BASE + (length + 64'd1) * (ROW_BITS / 8) > ROWS * (ROW_BITS / 8);
  endfunction

  always begin
    @(negedge clk);
    if (got_went || rst) got_valid = 0;
    if (answer_went || rst) answer_valid = 0;
    if (rst) begin
      get_done = gets;
      put_done = puts;
      row_done = rows;
      answer_done = answers;
    end
    get_ready = gets - get_done < QUEUE && !`PAUSES(2);
    put_ready = puts - put_done < QUEUE && answers - answer_done < QUEUE && !`PAUSES(3);
    given_ready = rows - row_done < QUEUE && !`PAUSES(4);
    get_head = get_done % QUEUE;
    if (!got_valid && gets != get_done && now >= get_first[get_head] && !`PAUSES(5)) begin
      got_valid = 1;
      got = records[get_row[get_head]];
      got_last = get_left[get_head] == 9'd1;
    end
    if (!answer_valid && answers != answer_done && now >= answer_first[answer_done % QUEUE] && !`PAUSES(6))
      answer_valid = 1;
    @(posedge clk);
    got_went = got_valid & got_taken;
    if (got_went) begin
      get_row[get_head] = get_row[get_head] + 1;
      get_left[get_head] = get_left[get_head] - 9'd1;
      if (get_left[get_head] == 0) get_done = get_done + 1;
    end
    answer_went = answer_valid & answer_taken;
    if (answer_went) answer_done = answer_done + 1;
    if (get_asked & get_ready) begin
      if (outside(get_address, get_length)) `WRONG(("a record at %h is read, outside the tables", get_address))
      get_first[gets % QUEUE] = now + RECORD_LATENCY;
      get_row[gets % QUEUE] = (get_address - RECORD_BASE) / (ROW_BITS / 8);
      get_left[gets % QUEUE] = {1'b0, get_length} + 9'd1;
      gets = gets + 1;
    end
    if (put_asked & put_ready) begin
      if (outside(put_address, put_length)) `WRONG(("a record at %h is written, outside the tables", put_address))
      put_row[puts % QUEUE] = (put_address - RECORD_BASE) / (ROW_BITS / 8);
      put_left[puts % QUEUE] = {1'b0, put_length} + 9'd1;
      puts = puts + 1;
    end
    if (given_valid & given_ready) begin
      row[rows % QUEUE] = given;
      row_last[rows % QUEUE] = given_last;
      rows = rows + 1;
      if (given_bytes != {ROW_BITS / 8{1'b1}}) `WRONG(("a row of a record is not written as a whole"))
    end
    while (rows != row_done && puts != put_done) begin
      put_head = put_done % QUEUE;
      records[put_row[put_head]] = row[row_done % QUEUE];
      if (row_last[row_done % QUEUE] != (put_left[put_head] == 9'd1)) `WRONG(("a record does not end with its last row"))
      put_row[put_head] = put_row[put_head] + 1;
      put_left[put_head] = put_left[put_head] - 9'd1;
      row_done = row_done + 1;
      if (put_left[put_head] == 0) begin
        put_done = put_done + 1;
        answer_first[answers % QUEUE] = now + RECORD_LATENCY;
        answers = answers + 1;
      end
    end
  end
`endif

  // ---- driver
  integer k, beat, before;
  reg [8 * 256 - 1:0] load, trace;
  reg [63:0] cycles = 0, patience;
  reg [31:0] word;
  reg [63:0] trained;

  // The registers that a file names must hold its words.
  task compare(input [63:0] wanted);
    begin
      read(wanted[32 +: ADDRESS_BITS], word);
      if (word !== wanted[31:0]) `WRONG(("%h holds %h, expected %h", wanted[32 +: ADDRESS_BITS], word, wanted[31:0]))
    end
  endtask

  // The driver acts at falling edges, halfway between those at which the board does. What it then sees of the board
  // (ready, valid) is what holds at the next rising edge.
  reg took_address, took_word;
  task send(input address_too, input word_too);
    begin
      awvalid = address_too;
      wvalid = word_too;
      while (awvalid || wvalid) begin
        @(posedge clk);
        took_address = awready;
        took_word = wready;
        @(negedge clk);
        if (took_address) awvalid = 0;
        if (took_word) wvalid = 0;
      end
    end
  endtask

  // Cycles in which a response must stand: one access in eight leaves it untaken for a while.
  task let_stand;
    if (noise[5:3] == 3'd0) repeat (6) @(negedge clk);
  endtask

  task put(input [ADDRESS_BITS - 1:0] address, input [31:0] value, input [3:0] bytes, input [1:0] response);
    begin
      awaddr = address;
      wdata = value;
      wstrb = bytes;
      // address and word may come in any order
      case (noise[2:0])
        3'd1: begin send(1, 0); send(0, 1); end
        3'd2: begin send(0, 1); send(1, 0); end
        default: send(1, 1);
      endcase
      let_stand;
      bready = 1;
      while (!bvalid) @(negedge clk);
      if (bresp != response) `WRONG(("a write to %h is answered with %0d, expected %0d", address, bresp, response))
      @(negedge clk);
      bready = 0;
    end
  endtask

  task write(input [ADDRESS_BITS - 1:0] address, input [31:0] value);
    put(address, value, 4'hf, 2'b00);
  endtask

  task get(input [ADDRESS_BITS - 1:0] address, input [1:0] response, output [31:0] value);
    begin
      araddr = address;
      arvalid = 1;
      while (!arready) @(negedge clk);
      @(negedge clk);
      arvalid = 0;
      let_stand;
      rready = 1;
      while (!rvalid) @(negedge clk);
      value = rdata;
      if (rresp != response) `WRONG(("a read of %h is answered with %0d, expected %0d", address, rresp, response))
      @(negedge clk);
      rready = 0;
    end
  endtask

  task read(input [ADDRESS_BITS - 1:0] address, output [31:0] value);
    get(address, 2'b00, value);
  endtask

  task await_interrupt(output [63:0] waited);
    begin
      waited = 0;
      while (!interrupt && waited < patience) begin
        @(negedge clk);
        waited = waited + 1;
      end
      if (!interrupt) begin
        `WRONG(("no interrupt in %0d cycles", waited))
        give_up;
      end
    end
  endtask

  // One step of the scenarios; hwgen/export/scenarios.py of the project that made this says what each is.
  reg [63:0] waited;
  reg [31:0] most;
  task play(input [71:0] step);
    case (step[71:64])
      WRITE: write(step[32 +: ADDRESS_BITS], step[31:0]);
      REJECTED_WRITE: put(step[32 +: ADDRESS_BITS], step[31:0], 4'hf, 2'b10);
      PARTIAL_WRITE: put(step[32 +: ADDRESS_BITS], step[31:0], 4'h3, 2'b10);
      READ: compare(step[63:0]);
      REJECTED_READ: get(step[32 +: ADDRESS_BITS], 2'b10, word);
      CLEARED: begin
        waited = 0;
        read(step[32 +: ADDRESS_BITS], word);
        while ((word & step[31:0]) != 0 && waited < patience) begin
          waited = waited + 8;           // cycles of a read, at the least
          read(step[32 +: ADDRESS_BITS], word);
        end
        if ((word & step[31:0]) != 0) begin
          `WRONG(("%h holds %h after %0d cycles", step[32 +: ADDRESS_BITS], word, waited))
          give_up;
        end
      end
      REACHED: begin
        waited = 0;
        read(step[32 +: ADDRESS_BITS], word);
        while (word < step[31:0] && waited < patience) begin
          most = word;
          waited = waited + 8;
          read(step[32 +: ADDRESS_BITS], word);
          if (word > most) waited = 0;
        end
        if (word != step[31:0]) begin
          `WRONG(("%h holds %h after %0d cycles, expected %h", step[32 +: ADDRESS_BITS], word, waited, step[31:0]))
          give_up;
        end
      end
      FILL:
        for (beat = 0; beat < PAGE_BEATS; beat = beat + 1)
          pages[step[63:32] / (DATA_BITS / 8) + beat] = pages[step[31:0] / (DATA_BITS / 8) + beat];
      PLACE: place = step[63:0];
      PARTS: part = step[63:0];
      HOLDS: begin
        repeats = step[63:32] / (DATA_BITS / 8);
        holds = step[31:0] * PAGE_BEATS;
      end
      LONG: if (quick) k = STEPS;
      INTERRUPT: await_interrupt(waited);
      LINE: if (interrupt != step[0]) `WRONG(("the interrupt's line is %b, expected %b", interrupt, step[0]))
      CYCLES: repeat (step[31:0]) @(negedge clk);
      SILENT: silent = step[BUSES - 1:0];
      BAD_BEATS: begin
        bad_beat = step[63:32] / (DATA_BITS / 8);
        bad_response = step[1:0];
        bad_bus = step[31:8];
      end
`ifdef RECORDS
      BAD_RECORDS: {answer_response, got_response} = step[3:0];
`endif
      RESET: begin
        rst = 1;
        repeat (8) @(negedge clk);
        rst = 0;
        @(negedge clk);
      end
      default: `WRONG(("there is no act %0d", step[71:64]))
    endcase
  endtask

  initial begin
    if ($value$plusargs("STALL=%d", stall) && (stall < 0 || stall > 255)) begin
      $display("FAIL: STALL must be 0 to 255, not %0d", stall);
      $finish;
    end
    if ($test$plusargs("QUICK")) quick = 1;
    if (!$value$plusargs("LOAD=%s", load)) load = "../images/load.hex";
    $readmemh(load, loads);
    $readmemh("writes.hex", writes);
    $readmemh("expected.hex", expected);
    $readmemh("counters.hex", counters);
    $readmemh("scenarios.hex", steps);
    $readmemh("pages.hex", pages, 0, BEATS - 1);
    $readmemh("scenario_pages.hex", pages, BEATS, BEATS + MORE_BEATS - 1);
`ifdef RECORDS
    for (k = 0; k < ROWS; k = k + 1) begin
      records[k] = 0;
      wanted[k] = 0;
      held[k] = ~0;
    end
    $readmemh("starts.hex", records);
    $readmemh("records.hex", wanted);
    $readmemh("held.hex", held);
`endif
    repeat (8) @(negedge clk);
    rst = 0;
    @(negedge clk);
    for (k = 0; k < LOADS; k = k + 1) write(loads[k][32 +: ADDRESS_BITS], loads[k][31:0]);
    if ($value$plusargs("TRACE=%s", trace)) begin
      traced = 1;
      $dumpfile(trace);
      $dumpvars(5, testbench.board);     // down to clusters: their lanes would be most of a file
    end
    for (k = 0; k < WRITES; k = k + 1) write(writes[k][32 +: ADDRESS_BITS], writes[k][31:0]);
    patience = PATIENCE * 256 / (256 - stall);
    await_interrupt(cycles);
    write(INTERRUPT_REGISTER, 32'd1);
    for (k = 0; k < EXPECTED; k = k + 1) compare(expected[k]);
    if (stall == 0) for (k = 0; k < COUNTERS; k = k + 1) compare(counters[k]);
    read(CYCLES_REGISTER, trained[31:0]);
    read(CYCLES_REGISTER + 4, trained[63:32]);
    if (trained > cycles + SLOP || trained + SLOP < cycles)
      `WRONG(("the board says that its training took %0d cycles, it took %0d", trained, cycles))
`ifdef RECORDS
    for (k = 0; k < ROWS; k = k + 1)
      if (((records[k] ^ wanted[k]) & held[k]) !== 0)
        `WRONG(("row %0d of the records is %h, expected %h", k, records[k], wanted[k]))
`endif
    if (interrupt) `WRONG(("the interrupt was cleared and is still there"))
    for (k = 0; k < STEPS && !traced; k = k + 1) begin
      before = errors;
      play(steps[k]);
      if (errors != before) $display("that was step %0d of scenarios.hex", k);
    end
    if (errors == 0) $display("PASS %0d words as expected, %0d cycles of training", EXPECTED, trained);
    else $display("FAIL %0d errors", errors);
    $finish;
  end
endmodule

// A channel of a bus, seen at its end: a valid message stays as it is until it is taken, and none is there after a cycle
// of reset (AXI4, sections A3.1.2 and A3.2.1).
module channel #(parameter WIDTH = 1) (
  input clk, input rst, input valid, input ready, input [WIDTH - 1:0] payload
);
  reg waiting = 0, was_reset = 0;
  reg [WIDTH - 1:0] before = 0;
  always @(posedge clk) begin
    if ((valid ^ valid) !== 1'b0) `WRONG(("%m: valid is %b", valid))
    if (was_reset && valid) `WRONG(("%m: valid in a reset"))
    if (waiting && !valid) `WRONG(("%m: withdrawn before it was taken"))
    if (waiting && valid && payload !== before) `WRONG(("%m: changed before it was taken"))
    waiting <= valid & ~ready & ~rst;
    was_reset <= rst;
    before <= payload;
  end
endmodule

// The channel on which a board requests bursts, for reading or writing. Bursts are over following addresses, of whole
// beats, within 4 KB, of normal memory, bufferable and not cached, and carry one identifier.
module requests #(parameter BYTES = 8) (
  input clk, input rst, input valid, input ready,
  input [63:0] address, input [7:0] length, input [2:0] size, input [1:0] burst,
  input id, input lock, input [3:0] cache, input [2:0] prot
);
  channel #(.WIDTH(86)) held (
    .clk(clk), .rst(rst), .valid(valid), .ready(ready),
    .payload({address, length, size, burst, id, lock, cache, prot})
  );
  always @(posedge clk)
    if (valid) begin
      if ((32'd1 << size) !== BYTES) `WRONG(("%m: a beat has the size %b, expected %0d bytes", size, BYTES))
      if (burst !== 2'b01) `WRONG(("%m: the burst's type is %b, expected 01", burst))
      if (id !== 1'b0) `WRONG(("%m: the identifier is %b, expected 0", id))
      if (lock !== 1'b0) `WRONG(("%m: lock is %b, expected 0", lock))
      if (cache !== 4'b0011) `WRONG(("%m: cache is %b, expected 0011", cache))
      if (prot !== 3'b000) `WRONG(("%m: prot is %b, expected 000", prot))
      if ((address % BYTES) !== 0) `WRONG(("%m: %h is not a multiple of a beat's %0d bytes", address, BYTES))
      if (((address % 4096 + (length + 64'd1) * BYTES) <= 4096) !== 1'b1)
        `WRONG(("%m: %0d beats from %h on cross 4 KB", length + 1, address))
    end
endmodule
